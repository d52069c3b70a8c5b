# Needs make and Python 3.11 or newer; everything else goes into .venv.

PYTHON ?= python3
# Another folder if the checkout is read-only: make demo VENV=/tmp/holdfast (a path without blanks)
VENV ?= .venv
# The site's generator has an environment of its own: the other targets do not need it.
SITE_VENV ?= .site
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready
# What `make demo` needs, with the server, and nothing else
RUNS := $(VENV)/.runs
# The tests read the output of programs as UTF-8 in every locale. Without bytecode files, which some environments forbid, every
# program that a test starts compiles Holdfast again, and the tests take half as long again.
PYTEST := env PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
CODE := $(wildcard src tests tools bench)

# Tests that need a program which is not in .venv, and long ones, have targets of their own.
USUAL := not torture and not browser and not promtool
# The units, the contract on SQLite and the properties cover what is pure: the core, the proofs, tallies and timelines.
PURE := core proof watch.tally watch.timeline
COVERED = $(PYTEST) -q -n $(JOBS) --dist worksteal -m "not torture" $(PURE:%=--cov=holdfast.%) --cov-branch

# Further arguments: make test ARGS="tests/tools -k restart"
ARGS ?=
# Processes that run the tests: more than the usual two cores, because many tests wait for something.
JOBS ?= 6
# make lock LOCKFLAGS=--upgrade takes the newest versions
LOCKFLAGS ?=

.DELETE_ON_ERROR:
.PHONY: help setup demo test test-fast planted browser alerts torture coverage check format bench peers docs pictures site lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with everything that the other targets need

# $(call new_venv,LOCK,HOW LONG): an empty .venv, with the packages of this lock file
define new_venv
@$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
@mkdir -p $(VENV) 2>/dev/null && test -w $(VENV) || { echo "$(VENV) cannot be written to: give another folder, as in make $(MAKECMDGOALS) VENV=/tmp/holdfast"; exit 1; }
@echo "Setting up $(VENV), which takes about $(2)"
@$(PYTHON) -m venv --clear $(VENV)
@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r $(1)
endef
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .

$(LOCKED): requirements.lock
	$(call new_venv,$<,a minute)
	@touch $@

# The distribution was called holdfast at first. On the package index that name is another project's, with the same package.
$(READY): $(LOCKED) pyproject.toml
	@$(BIN)/python -m pip uninstall -qq -y holdfast
	@$(INSTALL)
	@touch $@

$(RUNS): requirements-demo.lock pyproject.toml
	$(call new_venv,$<,ten seconds)
	@$(INSTALL)
	@touch $@

# In a fresh clone, the demo needs a few packages and ten seconds. Once .venv has everything, it stays so.
demo: $(if $(wildcard $(READY)),$(READY),$(RUNS)) ## run the demo: three workers, one of them killed
	@$(BIN)/holdfast demo

# worksteal: the tests differ much in length. A process starts its own PostgreSQL server only if a test needs one.
test: $(READY) ## run all tests except the long ones of `make torture`
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(USUAL)" $(ARGS)

test-fast: $(READY) ## run the tests of the rules, and of the contract on SQLite, in a minute
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not torture" -k "not postgres" tests/unit tests/property tests/contract $(ARGS)

planted: $(READY) ## plant recorded bugs in copies of the tree, and check that tests find them
	$(BIN)/python -m tools.planted --processes $(JOBS) $(ARGS)

browser: $(READY) site ## test the dashboard and the site in a real Chromium
	@$(BIN)/python -c 'import sys; from tests.browser.chromium import HOW, find_chromium; sys.exit(None if find_chromium() else HOW)'
	SITE_VENV=$(abspath $(SITE_VENV)) $(PYTEST) -m browser tests/browser $(ARGS)

alerts: $(READY) ## test the alert rules with promtool, which comes with Prometheus
	@$(BIN)/python -c 'import sys; from tests.deploy.promtool import HOW, find_promtool; sys.exit(None if find_promtool() else HOW)'
	$(PYTEST) -m promtool tests/deploy $(ARGS)

torture: $(READY) ## run the long tests: kill and restart workers and databases, install all extras on each Python
	$(PYTEST) -m torture --timeout 3600 $(ARGS)

coverage: $(READY) ## run the tests and show which branches of the core they miss
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(USUAL)" --cov --cov-report term-missing $(ARGS)

check: $(READY) ## check format, lint, types, imports and the core's coverage; run all of them even if one fails
	@status=0; \
	run() { echo "$$*"; "$$@" || status=1; }; \
	run $(BIN)/ruff format --check .; \
	run $(BIN)/ruff check .; \
	run $(BIN)/mypy $(CODE); \
	run $(BIN)/lint-imports; \
	run $(COVERED) --cov-report= tests/unit; \
	run $(COVERED) --cov-append --cov-report term --cov-fail-under=100 -k "not postgres and not http" tests/contract tests/property; \
	exit $$status

format: $(READY) ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# With arguments other than --quick, which select some of Holdfast's own figures, the other job queues are left out.
bench: $(READY) ## measure the speed, and compare it with raw statements and with other job queues
	$(BIN)/python -m bench $(ARGS)
	$(if $(filter-out --quick,$(ARGS)),,$(BIN)/python -m bench.peers $(ARGS))

peers: $(READY) ## compare with other job queues only; they are installed into .bench
	$(BIN)/python -m bench.peers $(ARGS)

docs: $(READY) ## update the generated parts of pages and holdfast.aio
	$(BIN)/python -m tools.async_ledger
	$(BIN)/python -m docs.generate

pictures: $(READY) ## make the pictures of the README from a run of the demo; this needs Chromium
	$(BIN)/python -m tools.pictures

$(SITE_VENV)/.locked: requirements-site.lock
	@$(PYTHON) -m venv --clear $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-site.lock
	@touch $@

site: $(SITE_VENV)/.locked ## build the docs as a searchable site in build/site, and check it; a warning is an error
	@$(SITE_VENV)/bin/python -m tools.site build

lock: ## make the lock files again from pyproject.toml and the requirements files
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(PYTHON) -m venv "$$tmp" && \
	"$$tmp/bin/python" -m pip install -qq --disable-pip-version-check uv && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header --all-extras $(LOCKFLAGS) \
		--output-file requirements.lock pyproject.toml requirements.in && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header $(LOCKFLAGS) \
		--output-file requirements-site.lock requirements-site.in && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header --extra server --constraint requirements.lock \
		--output-file requirements-demo.lock pyproject.toml requirements-demo.in && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header --extra all --constraint requirements.lock \
		--output-file deploy/requirements.lock pyproject.toml && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header --constraint requirements.lock \
		--output-file deploy/requirements-build.lock deploy/requirements-build.in && \
	"$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-header $(LOCKFLAGS) \
		--output-file bench/peers/requirements.lock bench/peers/requirements.in

clean: ## remove .venv and everything else that the targets have made
	rm -rf .venv .site .bench build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools docs $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
