/*-------------------------------------------------------------------------
 *
 * fingerprint.c
 *	  Hash of a request, to refuse one key for two different requests.
 *
 * What a client sends again after a time-out is the same request, but not
 * always the same bytes: the order of keys, white space, escapes and the way
 * a number is written may differ.  jsonb has already put the first three in
 * order (keys sorted, the last of two equal ones kept); here numbers are
 * reduced to their value, and strings to UTF8, so that a dump may be restored
 * into a database of another encoding.  The form that is hashed tags every value with its
 * type and gives strings their length, so different documents never look
 * alike.  The first byte of a fingerprint is the version of this form.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "fingerprint.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define FINGERPRINT_VERSION 1

PG_FUNCTION_INFO_V1(idem_fingerprint);

/* Keys to leave out: names or dotted paths of keys. */
typedef struct Exclusion
{
	char	  **paths;
	int			npaths;
} Exclusion;

static void
append_bytes(StringInfo form, char tag, const char *data, int len)
{
	uint32		size = pg_hton32((uint32) len);
	char	   *end;

	enlargeStringInfo(form, 1 + sizeof(size) + len);
	end = form->data + form->len;
	*end++ = tag;
	memcpy(end, &size, sizeof(size));
	memcpy(end + sizeof(size), data, len);
	form->len += 1 + sizeof(size) + len;
	form->data[form->len] = '\0';
}

/*
 * A string in UTF8, whatever the database keeps it in; in SQL_ASCII nobody
 * knows, so it is taken as it is.
 */
static char *
to_utf8(char *data, int len, int *utf8_len)
{
	char	   *utf8 = GetDatabaseEncoding() == PG_SQL_ASCII ? data :
		pg_server_to_any(data, len, PG_UTF8);

	*utf8_len = utf8 == data ? len : strlen(utf8);
	return utf8;
}

static void
append_scalar(StringInfo form, const JsonbValue *value)
{
	char	   *number;
	char	   *text;
	int			len;

	switch (value->type)
	{
		case jbvNull:
			appendStringInfoChar(form, 'n');
			break;
		case jbvBool:
			appendStringInfoChar(form, value->val.boolean ? 't' : 'f');
			break;
		case jbvNumeric:
			number = numeric_normalize(value->val.numeric);
			append_bytes(form, '#', number, strlen(number));
			pfree(number);
			break;
		case jbvString:
			text = to_utf8(value->val.string.val, value->val.string.len, &len);

			append_bytes(form, 's', text, len);
			break;
		default:
			elog(ERROR, "unexpected type of a jsonb scalar: %d",
				 (int) value->type);
	}
}

static int
compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* The path is followed by a zero byte. */
static bool
is_excluded(const Exclusion *exclusion, const char *path)
{
	return bsearch(&path, exclusion->paths, exclusion->npaths, sizeof(char *),
				   compare_paths) != NULL;
}

static void append_container(StringInfo form, JsonbIterator **it,
							 JsonbIteratorToken kind,
							 const Exclusion *exclusion, StringInfo path);

/* Takes the next value off the iterator, in depth, and appends it. */
static void
append_next(StringInfo form, JsonbIterator **it, const Exclusion *exclusion,
			StringInfo path)
{
	JsonbValue	value;
	JsonbIteratorToken token = JsonbIteratorNext(it, &value, false);

	if (token == WJB_VALUE || token == WJB_ELEM)
		append_scalar(form, &value);
	else
		append_container(form, it, token, exclusion, path);
}

/* One member of an object in the form: its key and where it stands. */
typedef struct Member
{
	char	   *key;
	int			key_len;
	int			at;
	int			len;
} Member;

static int
compare_members(const void *a, const void *b)
{
	const Member *ma = (const Member *) a;
	const Member *mb = (const Member *) b;

	if (ma->key_len != mb->key_len)
		return ma->key_len < mb->key_len ? -1 : 1;
	return memcmp(ma->key, mb->key, ma->key_len);
}

/*
 * Puts members into the order that a UTF8 database keeps them in, where they
 * come from one of another encoding.
 */
static void
order_members(StringInfo form, int start, Member *members, int nmembers)
{
	char	   *copy;

	if (GetDatabaseEncoding() == PG_UTF8 || nmembers < 2)
		return;
	copy = pnstrdup(form->data + start, form->len - start);
	memcpy(copy, form->data + start, form->len - start);
	qsort(members, nmembers, sizeof(Member), compare_members);
	form->len = start;
	for (int i = 0; i < nmembers; i++)
		appendBinaryStringInfo(form, copy + members[i].at - start,
							   members[i].len);
	pfree(copy);
}

/*
 * An object's members, from behind its beginning to its end.  The path has a
 * dot before every key, the first one included: an empty key is a key, too.
 */
static void
append_members(StringInfo form, JsonbIterator **it,
			   const Exclusion *exclusion, StringInfo path)
{
	int			start = form->len;
	int			nmembers = 0;
	int			room = 8;
	Member	   *members = palloc(sizeof(Member) * room);
	JsonbValue	key;

	while (JsonbIteratorNext(it, &key, false) == WJB_KEY)
	{
		int			outer_len = path ? path->len : 0;
		Member		member = {.at = form->len};

		CHECK_FOR_INTERRUPTS();
		member.key = to_utf8(key.val.string.val, key.val.string.len,
							 &member.key_len);
		append_bytes(form, 'k', member.key, member.key_len);
		if (path != NULL)
		{
			appendStringInfoChar(path, '.');
			appendBinaryStringInfo(path, key.val.string.val,
								   key.val.string.len);
		}
		append_next(form, it, exclusion, path);
		member.len = form->len - member.at;
		if (path != NULL && is_excluded(exclusion, path->data + 1))
			form->len = member.at;
		else
		{
			if (nmembers == room)
				members = repalloc(members, sizeof(Member) * (room *= 2));
			members[nmembers++] = member;
		}
		if (path != NULL)
		{
			path->len = outer_len;
			path->data[outer_len] = '\0';
		}
	}
	order_members(form, start, members, nmembers);
	pfree(members);
}

/*
 * An array or object behind its beginning.  Paths do not lead into arrays, so
 * below one there is nothing to exclude.
 */
static void
append_container(StringInfo form, JsonbIterator **it, JsonbIteratorToken kind,
				 const Exclusion *exclusion, StringInfo path)
{
	JsonbValue	element;
	JsonbIteratorToken token;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();

	if (kind == WJB_BEGIN_OBJECT)
	{
		appendStringInfoChar(form, '{');
		append_members(form, it, exclusion, path);
		appendStringInfoChar(form, '}');
		return;
	}

	appendStringInfoChar(form, '[');
	while ((token = JsonbIteratorNext(it, &element, false)) != WJB_END_ARRAY)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == WJB_ELEM)
			append_scalar(form, &element);
		else
			append_container(form, it, token, NULL, NULL);
	}
	appendStringInfoChar(form, ']');
}

/* The form of a document that is hashed. */
static void
append_document(StringInfo form, Jsonb *body, const Exclusion *exclusion)
{
	JsonbValue	scalar;
	StringInfoData path;
	JsonbIterator *it;

	if (JB_ROOT_IS_SCALAR(body))
	{
		(void) JsonbExtractScalar(&body->root, &scalar);
		append_scalar(form, &scalar);
		return;
	}
	if (exclusion->npaths > 0)
		initStringInfo(&path);
	it = JsonbIteratorInit(&body->root);
	append_next(form, &it, exclusion, exclusion->npaths > 0 ? &path : NULL);
}

static void
hash_form(StringInfo form, uint8 *digest)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (uint8 *) form->data, form->len) < 0 ||
		pg_cryptohash_final(ctx, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute a SHA-256 hash: %s",
			 pg_cryptohash_error(ctx));
	pg_cryptohash_free(ctx);
}

static Exclusion
read_exclusion(ArrayType *exclude)
{
	Exclusion	exclusion = {NULL, 0};
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;

	if (exclude == NULL)
		return exclusion;
	deconstruct_array(exclude, TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &nelements);
	exclusion.paths = palloc(sizeof(char *) * Max(nelements, 1));
	for (int i = 0; i < nelements; i++)
	{
		if (!nulls[i])
			exclusion.paths[exclusion.npaths++] =
				TextDatumGetCString(elements[i]);
	}
	qsort(exclusion.paths, exclusion.npaths, sizeof(char *), compare_paths);
	return exclusion;
}

/*
 * FingerprintOf - fingerprint of a request's body, without the keys and dotted
 * paths in exclude (or NULL); palloc'd.
 */
bytea *
FingerprintOf(Jsonb *body, ArrayType *exclude)
{
	Exclusion	exclusion = read_exclusion(exclude);
	int			size = VARHDRSZ + 1 + PG_SHA256_DIGEST_LENGTH;
	bytea	   *result = (bytea *) palloc(size);
	StringInfoData form;

	initStringInfo(&form);
	append_document(&form, body, &exclusion);

	SET_VARSIZE(result, size);
	*VARDATA(result) = FINGERPRINT_VERSION;
	hash_form(&form, (uint8 *) VARDATA(result) + 1);
	pfree(form.data);
	return result;
}

/*
 * idem_fingerprint(body jsonb, exclude text[]) returns bytea
 */
Datum
idem_fingerprint(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(FingerprintOf(PG_GETARG_JSONB_P(0),
									PG_ARGISNULL(1) ? NULL :
									PG_GETARG_ARRAYTYPE_P(1)));
}
