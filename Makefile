# idempotency - idempotency keys, fenced claims and stored responses
#
#   make && sudo make install       build and install for the pg_config found
#   make installcheck               run the tests against a running server
#   ci/test                         run all tests on a throwaway server

EXTENSION = idempotency
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)

MODULE_big = $(EXTENSION)
OBJS = $(patsubst %.c,%.o,$(EXTENSION).c $(sort $(wildcard src/*.c)))
DATA = $(sort $(wildcard $(EXTENSION)--*.sql))
PGFILEDESC = "idempotency - safe retries"

PG_CPPFLAGS = -I$(srcdir)/src -DIDEM_VERSION='"$(EXTVERSION)"'
PG_CFLAGS = -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION = $(patsubst specs/%.spec,%,$(sort $(wildcard specs/*.spec)))
TAP_TESTS = 1

ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Libraries share one namespace in a backend: export only what is asked for.
ifeq ($(PORTNAME),linux)
SHLIB_LINK += -Wl,--version-script=$(srcdir)/$(EXTENSION).map
$(MODULE_big).so: $(EXTENSION).map
endif

# Headers are few and shared: rebuild on any change of one.
$(OBJS): $(wildcard src/*.h) $(EXTENSION).control

# A release as PGXN takes it: everything that is committed, and nothing else.
DISTVERSION = $(shell sed -n '/"version"/{s/.*: "\(.*\)",\{0,1\}/\1/p;q;}' META.json)
DIST = $(EXTENSION)-$(DISTVERSION)

.PHONY: dist
dist:
	git archive --format zip --prefix $(DIST)/ --output $(DIST).zip HEAD
	@echo $(DIST).zip
