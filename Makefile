# Every target installs what it needs first. A newcomer needs `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without compiled modules, every command that a test starts would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-fast tests test-interop test-lowest lint style types bench bench-accuracy bench-api bench-import bench-pipeline bench-portal bench-scan bench-validate bench-webhooks prove lock sbom wheel clean
.DELETE_ON_ERROR:

# Everything is pinned. Without --no-deps, an old pip would install unpinned dependencies of extras.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

# For developers: the service, the tests and the linters.
setup: $(VENV)/.ready-dev $(VENV)/.compiled

# The service alone: 80 of 128 packages, and half the time.
$(VENV)/.ready: requirements.txt pyproject.toml tools/make-venv
	tools/make-venv $(PYTHON) $(VENV)
	$(INSTALL) --require-hashes -r requirements.txt
	$(INSTALL) --no-build-isolation --editable .
	touch $@

$(VENV)/.ready-dev: requirements-dev.txt $(VENV)/.ready
	$(INSTALL) --require-hashes -r requirements-dev.txt
	touch $@

# Ten seconds that no first scan has to take. Compiled again when a rule changes, or what compiles rules.
RULES := $(wildcard src/outcrop/rules/*.toml) $(wildcard src/outcrop/scanner/*/*.py)
$(VENV)/.compiled: $(RULES) $(VENV)/.ready
	rm -rf src/outcrop/compiled
	$(BIN)/outcrop rules compile
	touch $@

run: $(VENV)/.ready $(VENV)/.compiled
	$(BIN)/outcrop demo

lint: style types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy
	$(BIN)/lint-imports

# The rules are compiled on one core while packages are installed on the other; mypy runs while the tests start.
test:
	$(MAKE) --no-print-directory --jobs 2 setup
	$(MAKE) --no-print-directory style
	$(MAKE) --no-print-directory --jobs 2 types tests

tests: setup
	$(BIN)/pytest --durations 40

# The inner loop: the pure parts and the rules. No test here needs PostgreSQL, a browser or another program.
FAST := tests/domain tests/rules tests/scanner tests/structure tests/validation/http tests/validation/offline \
  tests/docs tests/test_webhooks.py

# One process for each core, so that each shares compiled rules with as many tests as possible.
test-fast: setup
	$(BIN)/pytest -n 2 -m "not slow and not browser and not e2e" $(FAST)

# The oldest direct dependencies that pyproject.toml allows, in an environment of their own. What they decide is
# tested: scans, queries, requests, pages, jobs, commands. A warning is no error here, and an old version of one
# package may warn about a new version of another.
LOWEST := tests/api tests/cli tests/contract tests/metrics tests/net tests/portal tests/rules tests/scanner   tests/services tests/sources tests/store tests/tracing tests/validation tests/e2e/test_serve.py tests/e2e/test_traces.py
$(VENV)-lowest/.ready: requirements-lowest.txt pyproject.toml tools/make-venv
	tools/make-venv $(PYTHON) $(VENV)-lowest
	$(INSTALL:$(BIN)/%=$(VENV)-lowest/bin/%) --require-hashes -r requirements-lowest.txt
	$(INSTALL:$(BIN)/%=$(VENV)-lowest/bin/%) --no-build-isolation --editable .
	touch $@

test-lowest: $(VENV)-lowest/.ready
	$(VENV)-lowest/bin/pytest -W default -m "not browser" $(LOWEST)

# Installs Node and JavaScript packages first. The program exits 1 if a check failed, 3 if one could not run on
# this machine: those are listed, and are no failure of the target.
test-interop: setup
	$(BIN)/python -m tests.interop || test $$? -eq 3

bench: bench-accuracy bench-api bench-import bench-pipeline bench-portal bench-scan bench-validate bench-webhooks

# ARGS="--findings N --dir DIR --only lists,filters,incidents,oracle,http,triage"
bench-api: setup
	$(BIN)/python -m bench.api $(ARGS)

# ARGS="--quick", "--runs N", "--repo PATH"
bench-portal: setup
	$(BIN)/python -m bench.portal $(ARGS)

# ARGS="--findings N --steps N --against FOLDER --only steps,routes,uploads --uploads N"
bench-import: setup
	$(BIN)/python -m bench.imports $(ARGS)

# ARGS="--repositories N"; from 10,000 on they are empty, and only planning and bookkeeping are measured.
# ARGS="--due N" measures when the runs of so many due targets begin.
bench-pipeline: setup
	$(BIN)/python -m bench.pipeline $(ARGS)

bench-scan: setup
	$(BIN)/python -m bench.scan $(ARGS)

# ARGS="--repos DIR", "--only-repos", "--others", "--unlabelled FILE", "--json FILE": docs/accuracy.md
bench-accuracy: setup
	$(BIN)/python -m bench.accuracy $(ARGS)

# ARGS="--checks N --issuers N --a-second N"
bench-validate: setup
	$(BIN)/python -m bench.validate $(ARGS)

# ARGS="--events N --pairs N --seconds N"
bench-webhooks: setup
	$(BIN)/python -m bench.webhooks $(ARGS)

# Trials under faults and attacks. ARGS="--short", "--minutes N", "--only NAMES", "--seed N", "--json FILE"
prove: setup
	$(BIN)/python -m prove $(ARGS)

# Writes the lock files from pyproject.toml; locked versions stay. ARGS="--upgrade" takes the newest ones.
lock:
	tools/lock $(PYTHON) $(ARGS)

# A bill of materials (CycloneDX) of what the service needs, in dist.
sbom: setup
	mkdir -p dist
	tools/make-sbom requirements.txt $$($(BIN)/python -c 'import outcrop; print(outcrop.__version__)') > dist/outcrop.cdx.json

# The wheels, in dist: a portable one, and one for this machine with the compiled rules.
wheel: setup
	tools/make-wheels $(BIN)/python dist

clean:
	rm -rf $(VENV) $(VENV)-lowest dist tests/interop/node_modules .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
