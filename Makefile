# The front door. A fresh machine needs python3, pip and make; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := .venv-demo
DOCS_INSTALLED := $(VENV)/.installed-docs
WORKERS ?= auto
REPEAT ?= 20

.PHONY: demo test versions laws check bench rivals crash cluster docs pictures clean help

help:           ## show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

# Create an environment in a folder, unless there is one; where Python has no venv module, with virtualenv.
define environment
	if [ ! -x $(1)/bin/python ]; then \
		$(PYTHON) -m venv $(1) || { \
			rm -rf $(1); \
			$(PYTHON) -m pip install --quiet --user virtualenv && $(PYTHON) -m virtualenv --quiet $(1); \
		}; \
	fi
endef

$(INSTALLED): pyproject.toml
	@$(call environment,$(VENV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compiler]'
	@touch $(INSTALLED)

# The demonstration runs from src/, so that nothing has to be built.
$(DEMO)/.installed: pyproject.toml
	@echo "Preparing the demonstration, once: a small environment in $(DEMO) with msgspec, rich and psutil"
	@$(call environment,$(DEMO))
	@$(DEMO)/bin/python tools/requirements.py cli monitor > $(DEMO)/needed.txt
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -r $(DEMO)/needed.txt
	@touch $@

demo: $(DEMO)/.installed ## run the demonstration: a sync workload on a temporary file, with a live view
	@PYTHONPATH=src $(DEMO)/bin/python -m taskmill demo
	@echo "The same in a browser: make test once, then $(BIN)/taskmill demo --web"

test: $(INSTALLED)    ## run the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

versions:       ## run the suite with each Python on this machine; VERSIONS="3.13" and TESTS=tests/policy limit it
	$(PYTHON) tools/versions.py --only "$(VERSIONS)" --workers $(WORKERS) $(TESTS)

check: $(INSTALLED)   ## check lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# The laws are in the files that draw examples with Hypothesis or take their seeds from tests/repetition.py.
laws: $(INSTALLED)    ## run the laws with random choices at length: REPEAT=20 times as many seeds and examples
	TASKMILL_REPEAT=$(REPEAT) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout 3600 tests/store/test_contract.py \
		$$(grep -rl --include='test_*.py' -e 'from tests.repetition' -e 'from hypothesis' tests)

crash: $(INSTALLED)   ## run the crash tests at full length: at least 300 rounds of kill -9, 300 s of a mixed workload, power cuts
	TMPDIR=$${TMPDIR:-/var/tmp} TASKMILL_CRASH_ROUNDS=300 $(BIN)/python -m pytest tests/crash tests/power -n 0

cluster: $(INSTALLED) ## run the cluster tests at full length: ten minutes of faults on a PostgreSQL server
	TMPDIR=$${TMPDIR:-/var/tmp} TASKMILL_CLUSTER_SECONDS=600 $(BIN)/python -m pytest tests/cluster -n 0

bench: $(INSTALLED)   ## measure ratios and write bench.json
	$(BIN)/python -m benchmarks

docs: $(DOCS_INSTALLED)   ## build the documentation site into build/site
	$(BIN)/python tools/build_site.py

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $(DOCS_INSTALLED)

pictures: $(INSTALLED) ## take the pictures of the page for the documentation; needs a Chromium
	$(BIN)/python -m tools.pictures

rivals: $(INSTALLED)  ## run taskmill beside other queues and write docs/explanation/rivals.md and its chart; QUICK=1 for a rough run
	$(BIN)/python -m benchmarks.rivals --install $(if $(QUICK),--quick)

clean:          ## remove the environments and caches
	rm -rf $(VENV) $(DEMO) .venvs build .mypy_cache .ruff_cache .pytest_cache .hypothesis
