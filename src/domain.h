/*-------------------------------------------------------------------------
 *
 * domain.h
 *	  Values of domains in generated SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DOMAIN_H
#define IDEM_DOMAIN_H

#include "utils/builtins.h"
#include "utils/lsyscache.h"

/*
 * DomainUnwrap - an expression of a type, as a value of the type below it where
 * that is a domain: a domain over an enum or an array is no instance of the
 * polymorphic type that their operators take.  An index on the column serves
 * the cast as well.
 */
static inline char *
DomainUnwrap(const char *expression, Oid type)
{
	Oid			base = getBaseType(type);

	if (base == type)
		return pstrdup(expression);

	/* Without a length: "character" alone would be one character. */
	return psprintf("(%s)::%s", expression,
					format_type_extended(base, -1,
										 FORMAT_TYPE_TYPEMOD_GIVEN |
										 FORMAT_TYPE_FORCE_QUALIFY));
}

#endif							/* IDEM_DOMAIN_H */
