# SPDX-License-Identifier: Apache-2.0
# One Makefile, no recursion into folders; everything made lands in build/.
#
#	make		libqueen.a and every tool whose bin/TOOL/main.c exists
#	make check	installs what the tests need, builds, runs every test
#	make demo	a running cell from nothing
#
# V=1 shows commands, SAN=1 builds with sanitizers in build/san.

VERSION := 0.1.0
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
DOCDIR ?= $(PREFIX)/share/doc/queen
ifeq ($(origin CC),default)
CC := $(if $(FUZZ),clang,gcc)
endif
PYTHON ?= /usr/bin/python3
CLANG_FORMAT ?= clang-format
FUZZ_SECONDS ?= 20
S3_DIR ?= build/s3
S3_PORT ?= 9000
WERROR ?= -Werror
# A fuzz target too is compiled more often than it is run.
CFLAGS ?= $(if $(FUZZ),-O0 -U_FORTIFY_SOURCE -g1 -fno-omit-frame-pointer,$(if \
	$(SAN),-O1 -g1 -fno-omit-frame-pointer,-O2 -g))

B := build$(if $(FUZZ),/fuzz,$(if $(SAN),/san))
Q := $(if $(V),,@)
say = @printf '%-5s %s\n' '$(1)' '$@'
comma := ,

# ---- what there is ----
TOOLS := $(patsubst bin/%/main.c,%,$(wildcard bin/*/main.c))
BINS := $(TOOLS:%=$(B)/bin/%)
# A folder whose main.c is still to come has modules and tests all the same.
PARTS := $(sort $(patsubst bin/%/,%,$(dir $(wildcard bin/*/*.c))))
LIB := $(B)/libqueen.a
LIB_SRC := $(sort $(wildcard lib/*.c))
SQL := $(sort $(wildcard sql/*.sql))
MAN := $(sort $(wildcard man/*.[1-9]))
UNITS := $(sort $(wildcard systemd/*))
# tests/unit/TOOL/ and tests/fuzz/TOOL/ see the modules of that tool too.
TEST_SRC := $(sort $(wildcard tests/unit/test_*.c tests/unit/*/test_*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c tests/fuzz/*/fuzz_*.c))
TESTS := $(TEST_SRC:tests/%.c=$(B)/tests/%)
CORPUS := $(FUZZ_SRC:tests/%.c=$(B)/tests/%)
BENCH := $(patsubst tests/bench/%.c,$(B)/bench/%,$(wildcard tests/bench/*.c))
# What is no test in that folder helps the tests: linked with each.
UNIT_HELP := $(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c))
# Programs that cell tests start.
WRITE := $(B)/s3/write
C_FILES := $(sort $(wildcard lib/*.c bin/*/*.c tests/unit/*.c \
	tests/unit/*/*.c tests/fuzz/*.c tests/fuzz/*/*.c tests/bench/*.c \
	tests/s3/*.c))
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
tool_obj = $(call obj,$(filter-out %/main.c,$(sort $(wildcard bin/$(1)/*.c))))

# ---- libraries: asked once, kept in build/pkg.mk ----
PKGS_lib := libevent_core libevent_extra libpq libzstd libsodium libcrypto libcurl
PKGS_queenctl := libcurl smartcols yaml-0.1
PKGS_queen-s3 := libarchive
PKGS_test := cmocka
# snappy and http-parser ship no .pc file
LIBS_HTTP := $(if $(shell grep -ls http_parser.h lib/*.c),-lhttp_parser)

# Goals that compile nothing themselves must work without the libraries.
NO_BUILD := deps deps-test clean fmt check demo uninstall dist man fuzz s3 \
	s3-stop
ifneq ($(if $(MAKECMDGOALS),$(filter-out $(NO_BUILD),$(MAKECMDGOALS)),all),)
include build/pkg.mk
endif
LIBS_queen-s3 += -lsnappy
build/pkg.mk: Makefile
	@mkdir -p build
	@for s in 'lib $(PKGS_lib)' 'queenctl $(PKGS_queenctl)' \
			'queen-s3 $(PKGS_queen-s3)'; do \
		set -- $$s; n=$$1; shift; c=$$(pkg-config --cflags "$$@") && \
		l=$$(pkg-config --libs "$$@") || { rm -f $@.new; \
		echo "libraries are missing: run 'make deps'" >&2; exit 1; }; \
		echo "CFLAGS_$$n := $$c"; echo "LIBS_$$n := $$l"; \
	done >$@.new && mv $@.new $@

# ---- flags: ours in Q_*, the user's after them ----
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined) \
	$(if $(FUZZ),-fsanitize=fuzzer-no-link$(comma)address$(comma)undefined) \
	$(if $(SAN)$(FUZZ),-fno-sanitize-recover=all)
FORTIFY := $(if $(SAN)$(FUZZ),,$(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),\
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3))
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wcast-qual -Wpointer-arith -Wwrite-strings -Wformat=2 -Wundef -Wvla
Q_CPPFLAGS = -D_GNU_SOURCE -DQUEEN_VERSION='"$(VERSION)"' -Ilib $(FORTIFY)
Q_CFLAGS = -std=c11 $(WARN) $(WERROR) -fno-common -fstack-protector-strong \
	-fstack-clash-protection -fPIE $(SANFLAGS)
Q_LDFLAGS = -pie -Wl,-z,relro,-z,now $(SANFLAGS)
LIBS = $(LIBS_HTTP) $(LIBS_lib) -lm $(LDLIBS)
link = $(CC) $(Q_CFLAGS) $(CFLAGS) $(Q_LDFLAGS) $(FAST_LD) $(LDFLAGS) -o $@
# There are some 200 test programs, and gold links them in a third of the time
# that ld takes; what clang's sanitizers bring it does not know.
GOLD := $(if $(findstring clang,$(CC)),,$(if $(shell command -v ld.gold),\
	-fuse-ld=gold))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all tests check check-built unit cell cell-san lint fmt fuzz fuzz-run \
	bench bench-jobs bench-pgsrc bench-pgsink bench-s3 soak man install \
	uninstall dist clean demo deps deps-test s3 s3-stop FORCE
.DEFAULT_GOAL := all
all: $(LIB) $(BINS)
tests: $(TESTS) $(CORPUS) $(WRITE) build/pycache.log

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(Q_CPPFLAGS) $(EXTRA) $(CPPFLAGS) $(CFLAGS_lib) $(Q_CFLAGS) \
		$(CFLAGS) $(UNOPTIMIZED) -MMD -MP -c -o $@ $<
# It is compiled more often than it is run.
$(B)/obj/tests/unit/%.o: UNOPTIMIZED = -O0 -U_FORTIFY_SOURCE

# The folder itself is a prerequisite so that a removed file is noticed.
$(B)/gen/schema_files.c: sql/embed sql $(SQL)
	@mkdir -p $(@D)
	$(call say,SQL)
	$(Q)sh sql/embed $(SQL) >$@
$(B)/obj/gen/schema_files.o: $(B)/gen/schema_files.c lib/schema.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(Q_CPPFLAGS) $(CPPFLAGS) $(CFLAGS_lib) $(Q_CFLAGS) $(CFLAGS) \
		-c -o $@ $<

$(LIB): $(call obj,$(LIB_SRC)) $(B)/obj/gen/schema_files.o
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Commit and date of the source, for one file of queenctl alone; a checkout
# builds the same bytes again and again.
COMMIT := $(or $(shell git rev-parse --short=12 HEAD 2>/dev/null),unknown)
BUILT := $(or $(shell date -u -d "@$${SOURCE_DATE_EPOCH:-$$(git log -1 \
	--format=%ct 2>/dev/null)}" +%Y-%m-%d 2>/dev/null),unknown)
$(B)/gen/commit.h: FORCE
	@mkdir -p $(@D)
	@printf '#define QUEEN_COMMIT "%s"\n#define QUEEN_BUILT "%s"\n' \
		'$(COMMIT)' '$(BUILT)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(B)/obj/bin/queenctl/version.o: $(B)/gen/commit.h
$(B)/obj/bin/queenctl/version.o: CPPFLAGS += -include $(B)/gen/commit.h

$(B)/tests/unit/% $(B)/tests/fuzz/%: FAST_LD = $(GOLD)

# Per tool: its program, and the tests of its modules.
define tool_rules
$(B)/obj/bin/$(1)/%.o: EXTRA = -Ibin/$(1) $(CFLAGS_$(1))
$(B)/obj/tests/unit/$(1)/%.o $(B)/obj/tests/fuzz/$(1)/%.o: \
	EXTRA = -Ibin/$(1) -Itests/unit $(CFLAGS_$(1))
$(B)/bin/$(1): $(B)/obj/bin/$(1)/main.o $(call tool_obj,$(1)) $(LIB)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$(Q)$$(link) $$^ $(LIBS_$(1)) $$(LIBS)
$(B)/tests/unit/$(1)/%: $(B)/obj/tests/unit/$(1)/%.o $(call tool_obj,$(1)) \
		$(call obj,$(UNIT_HELP)) $(LIB)
	@mkdir -p $$(@D)
	$(Q)$$(link) $$^ -lcmocka $(LIBS_$(1)) $$(LIBS)
$(B)/tests/fuzz/$(1)/%: $(B)/obj/tests/fuzz/$(1)/%.o $(call tool_obj,$(1)) \
		$(if $(FUZZ),,$(B)/obj/tests/fuzz/main.o) $(LIB)
	@mkdir -p $$(@D)
	$(Q)$$(link) $$^ $(if $(FUZZ),-fsanitize=fuzzer) $(LIBS_$(1)) $$(LIBS)
endef
$(foreach t,$(PARTS),$(eval $(call tool_rules,$t)))

$(B)/tests/unit/%: $(B)/obj/tests/unit/%.o $(call obj,$(UNIT_HELP)) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(link) $^ -lcmocka $(LIBS)
# libFuzzer brings its own main; elsewhere ours runs the corpus once.
$(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o \
		$(if $(FUZZ),,$(B)/obj/tests/fuzz/main.o) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(link) $^ $(if $(FUZZ),-fsanitize=fuzzer) $(LIBS)

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# ---- tests ----
# Every runner leaves "passed failed skipped" in build/*.sum for the end.
TEST_ENV = PYTHON='$(PYTHON)' QUEEN_SAN='$(SAN)' QUEEN_BIN_DIR='$(CURDIR)/$(B)/bin' \
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/build/pycache'
run_pytest = $(TEST_ENV) sh tests/run-cell $(B)
# What pytest makes of the tests, once instead of in each of its workers.
build/pycache.log: $(wildcard tests/cell/*.py)
	$(Q)mkdir -p build && $(TEST_ENV) $(PYTHON) -m pytest --collect-only \
		-qq tests/cell >$@

check:
	sh tests/install-deps build test
	$(MAKE) -j$$(nproc) all tests
	$(MAKE) check-built
check-built: all tests
	$(Q)rm -f $(B)/*.sum
	$(Q)rc=0; for t in unit cell man; do \
		$(MAKE) --no-print-directory $$t || rc=1; done; \
	sh tests/run-acceptance $(B) || rc=1; \
	sh tests/total $(B) || rc=1; exit $$rc
unit: $(TESTS) $(CORPUS)
	$(Q)$(TEST_ENV) sh tests/run-unit $(B) $^
cell: all $(WRITE) build/pycache.log
	$(Q)$(run_pytest) $(PYTEST_ARGS)
# What sanitizers look at: handlers and parsers of each program.
SAN_CELL := ack auth badinput configure conflation connectors ctl_connector \
	ctl_database ctl_kv ctl_ojs ctl_s3 ctl_server ctl_timer dlq \
	encryption_keys fetch gate kv_errors lake_config lake_names \
	lake_queue lake_routes messages ojs_cron ojs_jobs ojs_rate \
	ojs_streams ojs_streams_input ojs_unique pop push queenctl replay \
	resources riders_edges seek sink_modes src_stream system tenancy \
	timer transaction
cell-san: all $(WRITE) build/pycache.log
	$(Q)$(run_pytest) $(patsubst %,--ignore=%,$(filter-out \
		$(SAN_CELL:%=tests/cell/test_%.py),$(wildcard \
		tests/cell/test_*.py))) -m 'not amount' $(PYTEST_ARGS)
soak: all
	$(Q)QUEEN_SOAK=1 $(run_pytest) -m soak $(PYTEST_ARGS)
bench: all $(BENCH)
	$(Q)$(TEST_ENV) tests/bench/core $(BENCH_ARGS)
bench-jobs bench-pgsrc bench-pgsink bench-s3: bench-%: all $(BENCH)
	$(Q)$(TEST_ENV) tests/bench/$* $(BENCH_ARGS)
$(BENCH): $(B)/bench/%: $(B)/obj/tests/bench/%.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_lib)
$(B)/obj/tests/s3/write.o: EXTRA = -Ibin/queen-s3
$(WRITE): $(B)/s3/%: $(B)/obj/tests/s3/%.o \
		$(call obj,$(wildcard $(patsubst %,bin/queen-s3/%,format.c \
		jsonl.c object.c parquet*.c))) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_queen-s3) $(LIBS)
fuzz:
	$(Q)$(MAKE) FUZZ=1 fuzz-run
fuzz-run: $(CORPUS)
	$(Q)sh tests/run-fuzz $(B) $(FUZZ_SECONDS) $^
man:
	$(Q)sh tests/lint/man $(MAN)
lint: all tests
	$(Q)MAKE='$(MAKE)' CC='$(CC)' CLANG_FORMAT='$(CLANG_FORMAT)' \
		FLAGS='-D_GNU_SOURCE -Ilib $(CFLAGS_lib) $(CFLAGS_queenctl) $(CFLAGS_queen-s3)' \
		sh tests/lint/run $(B)
fmt:
	$(CLANG_FORMAT) -i $(C_FILES)

# ---- getting it onto a machine ----
deps:
	sh tests/install-deps build
deps-test:
	sh tests/install-deps build test
demo:
	sh tests/install-deps build
	$(MAKE) -j$$(nproc) all
	sh tests/demo/tour build/bin $(DEMO_DIR)
# A real S3 server on loopback; prints the settings: eval "$(make -s s3)".
s3:
	$(Q)bash tests/s3/server up '$(S3_DIR)' '$(S3_PORT)'
s3-stop:
	$(Q)bash tests/s3/server stop '$(S3_DIR)'
install: all
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(UNITDIR)' '$(DESTDIR)$(DOCDIR)'
	$(if $(BINS),install -m 755 $(BINS) '$(DESTDIR)$(BINDIR)')
	for m in $(MAN); do d='$(DESTDIR)$(MANDIR)'/man$${m##*.}; \
		install -d "$$d" && install -m 644 "$$m" "$$d" || exit 1; done
	for u in $(UNITS); do case $$u in \
		*.service|*.target) d='$(DESTDIR)$(UNITDIR)' ;; \
		*) d='$(DESTDIR)$(DOCDIR)' ;; esac; \
		sed 's|/usr/local/bin|$(BINDIR)|g' "$$u" >"$$d/$${u##*/}" && \
		chmod 644 "$$d/$${u##*/}" || exit 1; done
	$(if $(wildcard README.md),install -m 644 README.md '$(DESTDIR)$(DOCDIR)')
uninstall:
	rm -f $(TOOLS:%='$(DESTDIR)$(BINDIR)/%')
	for m in $(notdir $(MAN)); do \
		rm -f '$(DESTDIR)$(MANDIR)'/man$${m##*.}/"$$m"; done
	for u in $(notdir $(UNITS)); do \
		rm -f '$(DESTDIR)$(UNITDIR)'/"$$u" '$(DESTDIR)$(DOCDIR)'/"$$u"; done
	rm -rf '$(DESTDIR)$(DOCDIR)'
dist:
	mkdir -p build
	git archive --format=tar.gz --prefix=queen-$(VERSION)/ \
		-o build/queen-$(VERSION).tar.gz HEAD
# The fetched servers and readers in build/pg and build/readers are kept.
clean:
	rm -rf build/obj build/bin build/gen build/tests build/s3 build/san build/fuzz \
		build/pgdata build/pycache build/libqueen.a build/pkg.mk build/*.sum \
		build/*.xml build/*.log
