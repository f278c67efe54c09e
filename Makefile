# Verbs of this project. `make serve` and `make test` need nothing but Python 3.11 or newer.
GOLDEN ?= tests/golden/data
ARGS ?=

# Anything called python3 counts if it is new enough; newer names first on machines that have several.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN_READY := $(VENV)/.ready-to-serve

.PHONY: help serve fmt lint check collected test test-long test-pythons e2e golden jars archives kerberos permissions bench bench-long attack docs compat release clean pipeline-demo
help:
	@echo 'make serve   run a broker on localhost:9092, data in ./kwire-data (ARGS="--listen :9092" for more)'
	@echo 'make test    everything that is tested; what needs Java or kcat says so when skipped'
	@echo 'make check   format, lint, types, import rules and quick tests: before each commit'
	@echo 'make fmt | golden | test-long | test-pythons | e2e | bench | bench-long | attack | docs | compat | pipeline-demo | release | clean'

# The virtual environment

NATIVE = $(wildcard kwire/_native*.pyx kwire/_native_*.pxi server/native/*.pyx server/native/*.pxi)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'kwire needs Python 3.11 or newer with the venv module;' \
		'on Debian and Ubuntu: apt-get install python3 python3-venv'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml setup.py bin/kwire $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Python compiles what is imported, when it is: pip would compile thousands of modules that nothing here imports.
$(READY): pyproject.toml setup.py bin/kwire $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(RUN_READY)

# Using it

serve: $(RUN_READY)
	@exec $(BIN)/kwire serve $(ARGS)

# Working on it

fmt: $(READY)
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

lint: $(READY)
	@.ci/stage lint $(BIN)/ruff check --quiet .
	@.ci/stage format $(BIN)/ruff format --check --quiet .
	@.ci/stage types $(BIN)/mypy --no-error-summary
	@.ci/stage imports $(BIN)/lint-imports --no-cache

# Files of tests go to WORKERS processes, one after the other: four on two cores, since tests with Java wait half of
# their time (898 s in place of 1,016 with three). Each one collects all tests, so the quick tests alone go to two.
WORKERS ?= 4
check: WORKERS = 2
IN_WORKERS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The same order and the same random numbers each time; make test-long has others each time.
SAME := --randomly-seed=1

check: lint
	@.ci/stage unit $(BIN)/pytest -q $(IN_WORKERS) $(SAME) -m 'not (e2e or zookeeper or jvm or spark or slow)' $(ARGS)

# What comes before the tests uses both cores. Then one run of pytest, so that its closing line counts everything; it
# works through the stages unit, slow, clients, java and spark in this order, with some quick files of unit at the end, and
# tells what each stage and each long file took, and how busy the cores were.
test:
	@$(MAKE) --no-print-directory --jobs lint archives kerberos collected
	@.ci/stage tests $(BIN)/pytest -q $(IN_WORKERS) $(SAME) --durations 15 --durations-min 15 $(ARGS)

# Compiles all tests, which each worker would do otherwise. What cannot be collected is told by the run itself.
collected: $(READY)
	@$(BIN)/pytest --collect-only -q -p no:cacheprovider >/dev/null 2>&1 || true

test-long: lint jars kerberos
	@.ci/stage tests env KWIRE_LONG=1 HYPOTHESIS_PROFILE=long $(BIN)/pytest -q --timeout 3600 $(ARGS)

# On each Python from 3.11 on that is here: .ci/test-pythons says how to name others, and systems in a chroot.
# SHORT=1 for a few minutes' worth; ARGS are pytest's.
test-pythons:
	@.ci/test-pythons $(ARGS)

e2e: $(READY)
	@.ci/stage e2e $(BIN)/pytest -q -m e2e $(ARGS)

# Every request without each permission, in a cluster of Apache Kafka and kwire; `make test` asks a part of them.
permissions: $(READY) jars
	@.ci/stage permissions env KWIRE_LONG=1 $(BIN)/pytest -q -s --timeout 3600 tests/compat/mixed/test_permissions.py $(ARGS)

golden: $(READY)
	@.ci/stage golden $(BIN)/python -m tests.golden '$(GOLDEN)'

# Apache Kafka's and ZooKeeper's jars, by Maven; without Java the tests that need them are skipped.
jars:
	@if command -v java >/dev/null && command -v mvn >/dev/null; then .ci/stage jars compat/java/fetch.sh; fi

# Archives of classes, from which the brokers and Spark's JVMs of tests start sooner; they are the tests' own, and nobody needs
# them.
archives: jars $(READY)
	@if command -v java >/dev/null && command -v mvn >/dev/null; then .ci/stage archives $(BIN)/python -m tests.support.class_archives; fi

# The package gssapi, which is compiled, where that can be done; without it the tests with Kerberos are skipped.
# It is installed by itself: `.[gssapi]` would build kwire once more.
# The C compiler does not optimize it, since that takes most of the time.
GSSAPI = $(BIN)/python -c 'from importlib.metadata import requires; \
	print(*(each.split(";")[0] for each in requires("kwire") if each.startswith("gssapi")))'
kerberos: $(READY)
	@if command -v krb5-config >/dev/null && command -v cc >/dev/null && ! $(BIN)/python -c 'import gssapi' 2>/dev/null; then \
		.ci/stage kerberos env CFLAGS='-O0 -g0' $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$($(GSSAPI))" \
		|| echo 'gssapi cannot be compiled here (Debian: python3-dev), so tests with Kerberos are skipped'; fi

# Beside Apache Kafka: the short form in under ten minutes, one with 10,000 partitions and nothing left out in twenty
# (ARGS=--medium), the long one in an hour and a half (in about an hour with ARGS="--rounds 2"); each writes docs/performance.md and docs/results/.
# BENCH="codec log" runs modules of bench/ instead, each of which measures one thing.
BENCH ?=
bench: $(READY) jars
	@if [ -n '$(BENCH)' ]; then \
		for name in $(BENCH); do .ci/stage "bench $$name" $(BIN)/python -m bench.$$name $(ARGS) || exit; done; \
	else .ci/stage bench $(BIN)/python -m bench.suite $(ARGS); fi

bench-long: $(READY) jars
	@.ci/stage bench $(BIN)/python -m bench.suite --long $(ARGS)

# What an honest client feels beside each attack, then the longest turn for each API (ARGS are those of bench.attack;
# python -m bench.attack.sweep has its own). Under half an hour; `make test` has a short form.
attack: $(READY)
	@.ci/stage attack $(BIN)/python -m bench.attack $(ARGS)
	@.ci/stage sweep $(BIN)/python -m bench.attack.sweep --newest --sizes 1 4
	@.ci/stage floods $(BIN)/python -m bench.attack.floods
	@.ci/stage fills $(BIN)/python -m bench.attack.fills --seconds 30

docs: $(READY)
	$(BIN)/python -m docs.generate $(ARGS)

compat: $(READY) jars
	$(BIN)/python -m compat.matrix $(ARGS)

# ARGS="--records 100000" for a smaller one. Without Maven, Spark fetches its Kafka connector itself.
pipeline-demo: $(READY)
	@if command -v mvn >/dev/null; then \
		.ci/stage jars compat/java/fetch.sh spark-4.0.0 && export KWIRE_SPARK_JARS='$(CURDIR)/compat/java/target/spark-4.0.0'; \
	fi && PYTHONSAFEPATH=1 $(BIN)/python -m kwire.pipeline.demo $(ARGS)

# Builds dist/*.tar.gz and dist/*.whl from the last commit, checked; ARGS=--without-tests leaves the sdist's tests out.
release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@.ci/stage release $(BIN)/python -m tests.packaging.release $(ARGS)

clean:
	rm -rf $(VENV) bench/.cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
