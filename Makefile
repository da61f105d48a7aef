# The front door. A fresh machine needs python3, pip and make; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= auto

.PHONY: demo test check bench crash cluster clean help

help:           ## show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(INSTALLED): pyproject.toml
	@if [ ! -x $(BIN)/python ]; then \
		$(PYTHON) -m venv $(VENV) || { \
			rm -rf $(VENV); \
			$(PYTHON) -m pip install --quiet --user virtualenv && $(PYTHON) -m virtualenv --quiet $(VENV); \
		}; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compiler]'
	@touch $(INSTALLED)

demo: $(INSTALLED)    ## run the demonstration: a sync workload on a temporary file, with a live view
	$(BIN)/taskmill demo

test: $(INSTALLED)    ## run the whole suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(INSTALLED)   ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

crash: $(INSTALLED)   ## the long run of the crash harness: at least 300 rounds of kill -9, 300 s of a mixed workload, power cuts
	TASKMILL_CRASH_ROUNDS=300 $(BIN)/python -m pytest tests/crash tests/power -n 0

cluster: $(INSTALLED) ## the long run of a cluster under fire: ten minutes of faults on a PostgreSQL server
	TASKMILL_CLUSTER_SECONDS=600 $(BIN)/python -m pytest tests/cluster -n 0

bench: $(INSTALLED)   ## measure ratios and write bench.json
	$(BIN)/python -m benchmarks

clean:          ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
