# The tasks of this repository. `make` lists them. Works with GNU Make 3.81 (macOS) and later.

DATABASE ?= sqlite
PYTEST_ARGS ?= -n 4 --dist worksteal
SECONDS_EACH ?= 60
SOAK_SECONDS ?= 600
HISTORY_SECONDS ?= 1800
CRASH_SECONDS ?= 600
RACES_SECONDS ?= 600
TODO ?=

venv := .venv

# Read when a recipe runs, since the set-up before it is what writes java_home.
python = JAVA_HOME="$$(cat $(venv)/java_home)" $(venv)/bin/python

# Images of containers tend to set it: each process would compile all modules, and all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo todo test test-long tests compiled lint format fuzz sanitized soak crash races bench docs test-system-icu clean

help: ## list these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: ## create .venv and install what is missing (the other tasks do it too)
	@bash tools/setup.sh

demo: setup ## run the demonstration; DATABASE=sqlite or postgres
	$(python) -m examples.cities.demo --database $(DATABASE)

todo: setup ## run the example application; TODO="--port 8000 --database URL"
	$(python) -m examples.todo_app $(TODO)

test: setup ## lint and run all tests; PYTEST_ARGS="-n 2" may be given
	@$(MAKE) --no-print-directory -j 2 lint tests

test-long: setup ## the tests, with the long form of those that have one
	@$(MAKE) --no-print-directory -j 2 lint tests PYTEST_ARGS="$(PYTEST_ARGS) --long"

# Beside lint, since mypy alone takes a core for as long as twenty tests.
tests: compiled
	$(python) -m pytest $(PYTEST_ARGS)

# pytest compiles each file of tests anew, with its own `assert`. So would each of its workers.
compiled: setup
	@$(python) -m pytest -q --collect-only >$(venv)/collected 2>&1 || { cat $(venv)/collected; exit 1; }

lint: setup ## check style and types
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy --strict zapdb

format: setup ## repair style and layout where a tool can
	$(python) -m ruff check --fix
	$(python) -m ruff format

fuzz: setup ## fuzz what reads stored bytes; SECONDS_EACH=60 may be changed
	$(python) -m tests.fuzz --seconds $(SECONDS_EACH)

sanitized: setup ## the accelerator under AddressSanitizer and UBSan; SECONDS_EACH=60 may be changed
	$(python) -m tests.native.sanitized $(SECONDS_EACH)

soak: setup ## a history store (HISTORY_SECONDS=1800), rolling deployments, a web service with deaths, migrations that come and go (SOAK_SECONDS=600), on each engine
	ZAPDB_HISTORY_SOAK_SECONDS=$(HISTORY_SECONDS) ZAPDB_SOAK_SECONDS=$(SOAK_SECONDS) \
	  $(python) -m pytest --long -s tests/contract/test_history_soak.py tests/contract/test_rolling.py \
	  tests/contract/test_linearizable.py tests/contract/test_web_soak.py \
	  tests/contract/test_rollback_under_load.py -k "not pure and not postgresql15"

crash: setup ## kill drivers, executors, workers, backends and mirrors at random points; CRASH_SECONDS=600 on each engine
	ZAPDB_CRASH_SECONDS=$(CRASH_SECONDS) $(python) -m pytest --long -s tests/crash

races: setup ## test files in random order, with threads scheduled with malice; RACES_SECONDS=600
	$(python) -m tests.races --seconds $(RACES_SECONDS)

bench: setup ## measure speed against the ratios to reach
	$(python) -m tests.bench

docs: setup ## generate docs/reference from the code
	$(python) -m tools.docs

test-system-icu: venv := .venv-system-icu
test-system-icu: ## run the tests with the ICU of the operating system
	@bash tools/setup.sh --system-icu
	$(python) -m pytest $(PYTEST_ARGS)

clean: ## remove environments, caches and build output
	rm -rf .venv .venv-system-icu .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
