# All that the catalog knows of the objects of the extension, for tests that
# compare two installations of it.
#
#	my $same = $node->safe_psql('one', Catalog::listing())
#	  eq $node->safe_psql('another', Catalog::listing());
#
# One thing a line, named first: "function public.idem_purge(bigint): volatility v".
# Nothing in it depends on object ids, and nothing on the order of creation but
# the order of columns, which the library goes by.  What the server itself keeps
# among the options of columns ("pg_attver" of views in newer minor versions) is
# left out.
package Catalog;

use strict;
use warnings;

# An access list that is not set is the default one; the order of grants does
# not matter.
sub _acl
{
	my ($acl, $type, $owner) = @_;
	return "(SELECT string_agg(format('%s by %s to %s%s', a.privilege_type, a.grantor::regrole,"
	  . " CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,"
	  . " CASE WHEN a.is_grantable THEN ' with grant option' ELSE '' END), ', '"
	  . " ORDER BY a.privilege_type, a.grantee, a.grantor, a.is_grantable)"
	  . " FROM aclexplode(coalesce($acl, acldefault('$type', $owner))) a)";
}

# What was granted when it was installed, which dumps start from.
my $INITIAL = '(SELECT i.initprivs FROM pg_init_privs i WHERE i.classoid = m.classid AND i.objoid = m.objid AND i.objsubid = 0)';

# Each is a query of (what, property, value).
my @PARTS = (
	# the extension
	q{SELECT 'extension', p.name, p.value FROM pg_extension e CROSS JOIN LATERAL (VALUES
		('version', e.extversion), ('schema', e.extnamespace::regnamespace::text),
		('relocatable', e.extrelocatable::text), ('comment', obj_description(e.oid, 'pg_extension'))) p(name, value)
	 WHERE e.extname = 'idempotency'},
	q{SELECT 'extension', 'dumps rows of ' || t.name::regclass, t.condition
	  FROM pg_extension e CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) t(name, condition)
	 WHERE e.extname = 'idempotency'},

	# whatever belongs to it
	q{SELECT pg_describe_object(m.classid, m.objid, 0), 'comment', obj_description(m.objid, m.classid::regclass::name)
	  FROM member m},
	# functions
	q{SELECT pg_describe_object(m.classid, m.objid, 0), p.name, p.value
	  FROM member m JOIN pg_proc f ON m.classid = 'pg_proc'::regclass AND f.oid = m.objid
	 CROSS JOIN LATERAL (VALUES
		('definition', CASE WHEN f.prokind <> 'a' THEN pg_get_functiondef(f.oid) END), ('kind', f.prokind::text),
		('language', (SELECT l.lanname::text FROM pg_language l WHERE l.oid = f.prolang)),
		('source', f.prosrc), ('library', f.probin), ('SQL body', pg_get_function_sqlbody(f.oid)),
		('arguments', pg_get_function_arguments(f.oid)), ('result', pg_get_function_result(f.oid)),
		('volatility', f.provolatile::text), ('parallel', f.proparallel::text), ('strict', f.proisstrict::text),
		('security definer', f.prosecdef::text), ('leakproof', f.proleakproof::text),
		('cost and rows', f.procost || ' ' || f.prorows), ('support', f.prosupport::text),
		('settings', f.proconfig::text), ('owner', f.proowner::regrole::text),
		('initial privileges', } . _acl($INITIAL, 'f', 'f.proowner') . q{),
		('privileges', } . _acl('f.proacl', 'f', 'f.proowner') . q{)) p(name, value)},

	# tables, views and sequences
	q{SELECT pg_describe_object(m.classid, m.objid, 0), p.name, p.value
	  FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	 CROSS JOIN LATERAL (VALUES
		('kind', c.relkind::text), ('persistence', c.relpersistence::text), ('options', c.reloptions::text),
		('options of its TOAST table', (SELECT t.reloptions::text FROM pg_class t WHERE t.oid = c.reltoastrelid)),
		('access method', (SELECT a.amname::text FROM pg_am a WHERE a.oid = c.relam)),
		('tablespace', c.reltablespace::text), ('replica identity', c.relreplident::text),
		('row security', c.relrowsecurity || ' ' || c.relforcerowsecurity),
		('query', CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END), ('owner', c.relowner::regrole::text),
		('sequence', (SELECT to_jsonb(s) - 'seqrelid' FROM pg_sequence s WHERE s.seqrelid = c.oid)::text),
		('initial privileges', } . _acl($INITIAL, 'r', 'c.relowner') . q{),
		('privileges', } . _acl('c.relacl', 'r', 'c.relowner') . q{)) p(name, value)},
	q{SELECT 'column ' || c.oid::regclass || '.' || CASE WHEN a.attisdropped THEN '(dropped)' ELSE quote_ident(a.attname) END || ' at ' || a.attnum,
		p.name, p.value
	  FROM member m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
	  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	 CROSS JOIN LATERAL (VALUES
		('type', format_type(a.atttypid, a.atttypmod)), ('not null', a.attnotnull::text),
		('collation', (SELECT l.collname::text FROM pg_collation l WHERE l.oid = a.attcollation)),
		('default', pg_get_expr(d.adbin, d.adrelid)), ('identity', a.attidentity::text), ('generated', a.attgenerated::text),
		('storage', concat_ws(' ', a.attstorage, a.attcompression)), ('options', (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(a.attoptions) o WHERE o NOT LIKE 'pg\_%')),
		('statistics', nullif(a.attstattarget, -1)::text), ('comment', col_description(a.attrelid, a.attnum)),
		('privileges', a.attacl::text)) p(name, value)},
	q{SELECT 'index ' || i.indexrelid::regclass, p.name, p.value
	  FROM member m JOIN pg_index i ON m.classid = 'pg_class'::regclass AND i.indrelid = m.objid
	 CROSS JOIN LATERAL (VALUES
		('definition', pg_get_indexdef(i.indexrelid)), ('valid', i.indisvalid::text), ('clustered', i.indisclustered::text),
		('primary', i.indisprimary::text), ('replica identity', i.indisreplident::text),
		('options', (SELECT c.reloptions::text FROM pg_class c WHERE c.oid = i.indexrelid)),
		('comment', obj_description(i.indexrelid, 'pg_class'))) p(name, value)},
	q{SELECT 'constraint ' || r.conname || ' of ' || r.conrelid::regclass, p.name, p.value
	  FROM member m JOIN pg_constraint r ON m.classid = 'pg_class'::regclass AND r.conrelid = m.objid
	 CROSS JOIN LATERAL (VALUES
		('definition', pg_get_constraintdef(r.oid)), ('validated', r.convalidated::text), ('inherited', r.connoinherit::text),
		('comment', obj_description(r.oid, 'pg_constraint'))) p(name, value)},
	q{SELECT 'trigger ' || t.tgname || ' of ' || t.tgrelid::regclass, p.name, p.value
	  FROM member m JOIN pg_trigger t ON m.classid = 'pg_class'::regclass AND t.tgrelid = m.objid AND NOT t.tgisinternal
	 CROSS JOIN LATERAL (VALUES
		('definition', pg_get_triggerdef(t.oid)), ('enabled', t.tgenabled::text),
		('comment', obj_description(t.oid, 'pg_trigger'))) p(name, value)},
	q{SELECT 'rule ' || r.rulename || ' of ' || r.ev_class::regclass, p.name, p.value
	  FROM member m JOIN pg_rewrite r ON m.classid = 'pg_class'::regclass AND r.ev_class = m.objid
	 CROSS JOIN LATERAL (VALUES
		('definition', pg_get_ruledef(r.oid)), ('enabled', r.ev_enabled::text)) p(name, value)},
	q{SELECT 'policy ' || y.polname || ' of ' || y.polrelid::regclass, 'definition',
		concat_ws(' ', y.polcmd, y.polpermissive, y.polroles::text, pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid))
	  FROM member m JOIN pg_policy y ON m.classid = 'pg_class'::regclass AND y.polrelid = m.objid},

	# types
	q{SELECT pg_describe_object(m.classid, m.objid, 0), p.name, p.value
	  FROM member m JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
	 CROSS JOIN LATERAL (VALUES
		('kind', t.typtype::text), ('base', format_type(t.typbasetype, t.typtypmod)), ('default', t.typdefault),
		('labels', (SELECT string_agg(n.enumlabel, ', ' ORDER BY n.enumsortorder) FROM pg_enum n WHERE n.enumtypid = t.oid)),
		('owner', t.typowner::regrole::text),
		('privileges', } . _acl('t.typacl', 'T', 't.typowner') . q{)) p(name, value)});

# The statement, to be run in the database.
sub listing
{
	return "SET search_path = pg_catalog;\n"
	  . q{WITH member AS (
	SELECT d.classid, d.objid
	  FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	 WHERE d.deptype = 'e' AND e.extname = 'idempotency'), line(what, property, value) AS (
}
	  . join("\nUNION ALL\n", @PARTS) . ")\n"
	  . q{SELECT replace(what || ': ' || property || ' ' || coalesce(value, '-'), E'\n', ' | ') COLLATE "C" FROM line ORDER BY 1};
}

# What only one of two listings has, a line each, with "-" for the first one's.
sub difference
{
	my ($first, $second) = @_;
	my @first = split /\n/, $first;
	my @second = split /\n/, $second;
	my (%in_first, %in_second);

	@in_first{@first} = ();
	@in_second{@second} = ();
	return join("\n",
		(map { "- $_" } grep { !exists $in_second{$_} } @first),
		(map { "+ $_" } grep { !exists $in_first{$_} } @second));
}

1;
