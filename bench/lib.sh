# lib.sh - what the benchmarks share: a private server, and medians.  To source.

PATH=$("${PG_CONFIG:-pg_config}" --bindir):$PATH

# server_start DIR [SETTING...]: a private cluster in DIR/data, reached by its
# socket in DIR and by nothing else.
server_start() {
	local dir=$1
	shift
	initdb -A trust -U bench -D "$dir/data" --no-sync >/dev/null
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$dir'"
		printf '%s\n' "$@"
	} >>"$dir/data/postgresql.conf"
	pg_ctl -w -D "$dir/data" -l "$dir/log" start >/dev/null
	export PGHOST=$dir PGPORT=5432 PGUSER=bench PGDATABASE=postgres
}

# server_stop DIR: at once, and without a trace.
server_stop() {
	pg_ctl -D "$1/data" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$1"
}

sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

# Servers do not run as root.
refuse_root() {
	[ "$(id -u)" != 0 ] || {
		echo "$0: run this as an unprivileged user" >&2
		exit 2
	}
}
