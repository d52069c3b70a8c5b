# Needs make and Python 3.11 or newer; everything else goes into .venv.

PYTHON ?= python3
# Elsewhere if the checkout cannot be written to: make demo VENV=/tmp/holdfast (a path without blanks)
VENV ?= .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready
# The tests read what programs say as UTF-8, whatever the locale is.
PYTEST := env PYTHONUTF8=1 $(BIN)/python -m pytest
CODE := $(wildcard src tests tools bench)

# Further arguments: make test ARGS="tests/tools -k restart"
ARGS ?=
# Processes that run the tests. Many tests wait for something, so there are more than the two cores that are asked for.
JOBS ?= 4
# make lock LOCKFLAGS=--upgrade takes the newest versions
LOCKFLAGS ?=

.DELETE_ON_ERROR:
.PHONY: help setup demo test test-fast torture coverage check format bench peers docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything the other targets need

$(LOCKED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@mkdir -p $(VENV) 2>/dev/null && test -w $(VENV) || { echo "$(VENV) cannot be written to: give another folder, as in make $(MAKECMDGOALS) VENV=/tmp/holdfast"; exit 1; }
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## show Holdfast at work
	@$(BIN)/holdfast demo

# worksteal: the tests differ much in length, and each process starts a
# PostgreSQL server of its own only if a test asks it for one.
test: $(READY) ## run all tests but the torture
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not torture" $(ARGS)

test-fast: $(READY) ## run the tests of the rules and of the contract on SQLite, in a minute
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not torture" -k "not postgres" tests/unit tests/property tests/contract $(ARGS)

torture: $(READY) ## run the long tests that kill and restart things
	$(PYTEST) -m torture --timeout 3600 $(ARGS)

coverage: $(READY) ## run the tests and show which branches of the core they miss
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not torture" --cov --cov-report term-missing $(ARGS)

check: $(READY) ## check format, lint, types, imports and the core's coverage; runs them all, whatever they say
	@status=0; \
	run() { echo "$$*"; "$$@" || status=1; }; \
	run $(BIN)/ruff format --check .; \
	run $(BIN)/ruff check .; \
	run $(BIN)/mypy $(CODE); \
	run $(BIN)/lint-imports; \
	run $(PYTEST) -q -n $(JOBS) tests/unit --cov=holdfast.core --cov=holdfast.proof --cov-branch --cov-report term --cov-fail-under=100; \
	exit $$status

format: $(READY) ## format the code and fix what can be fixed by itself
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# The peers are asked for only where nothing but --quick is: other arguments choose among Holdfast's own figures.
bench: $(READY) ## measure, beside the raw statements and beside the peers
	$(BIN)/python -m bench $(ARGS)
	$(if $(filter-out --quick,$(ARGS)),,$(BIN)/python -m bench.peers $(ARGS))

peers: $(READY) ## measure beside the peers alone; they are installed into .bench
	$(BIN)/python -m bench.peers $(ARGS)

docs: $(READY) ## make the generated pages and holdfast.aio anew
	$(BIN)/python -m tools.async_ledger
	$(BIN)/python -m docs.generate

lock: ## make requirements.lock anew of pyproject.toml and requirements.in, and that of the peers
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(PYTHON) -m venv "$$tmp" && \
	"$$tmp/bin/python" -m pip install -qq --disable-pip-version-check uv && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --all-extras $(LOCKFLAGS) \
		--output-file requirements.lock pyproject.toml requirements.in && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header $(LOCKFLAGS) \
		--output-file bench/peers/requirements.lock bench/peers/requirements.in

clean: ## remove .venv and everything that was made
	rm -rf .venv .bench build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
