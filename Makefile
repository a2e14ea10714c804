# Two commands on a fresh machine with Python 3.11+ and make: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help serve test check format lint types contracts clients bench guard evals soak overload probes mutants pythons cov clean

help: ## Show the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-10s %s\n", $$1, $$2 }'

serve: $(VENV)/.serves ## Run the gateway (ARGS="--port 9000"); without a gateway.toml it is a demo that needs no key
	$(BIN)/python -m gateway.api $(ARGS)

test: $(VENV)/.develops ## Run every test
	$(BIN)/python -W error -m unittest

check: $(VENV)/.develops format lint contracts ## Everything that must pass, as many things at a time as there are CPUs
	$(MAKE) --no-print-directory --jobs=2 types probes
	$(BIN)/python -W error -m tests

format: $(VENV)/.develops ## Fail if a file is not formatted (ruff format fixes it)
	$(BIN)/ruff format --check .

lint: $(VENV)/.develops ## Lint
	$(BIN)/ruff check .

types: $(VENV)/.develops ## mypy, strict
	$(BIN)/mypy

contracts: $(VENV)/.develops ## Which file may import which
	$(BIN)/lint-imports --no-cache

clients: $(VENV)/.develops ## Real clients, and upstreams that break and judge, against the gateway (needs the drivers beside this checkout)
	$(BIN)/python .ci/clients.py ../shared/clients ../shared/data/openai/openapi.json.gz

bench: $(VENV)/.develops ## Measure the gateway alone, in two minutes (ARGS="--peers DIR" beside others; bench/README.md)
	$(BIN)/python -m bench $(ARGS)

guard: $(VENV)/.develops ## Count the instructions of a request; fail 10 % above the committed baseline (ARGS="--write")
	$(BIN)/python -m bench.guard $(ARGS)

evals: $(VENV)/.develops ## Hold what is claimed against measurements (ARGS="--quick", "--only router")
	$(BIN)/python -m evals $(ARGS)

soak: $(VENV)/.develops ## An hour of mixed load with a fault every few seconds (ARGS="--seconds 60 --every 2")
	$(BIN)/python -m evals.soak $(ARGS)

overload: $(VENV)/.develops ## A minute of five times what the gateway can do (ARGS="--times 10")
	$(BIN)/python -m evals.overload $(ARGS)

probes: $(VENV)/.develops ## Try to break a real gateway; fails if anything is found (ARGS="--only rate-limit")
	$(BIN)/python -m probes $(ARGS)

mutants: $(VENV)/.develops ## Break the semantic verifier in every place; each must be noticed (some minutes)
	$(BIN)/python -m evals.mutants_verifier $(ARGS)

pythons: $(VENV)/.develops ## A telling part of the tests under each other Python that is supported and found here
	$(BIN)/python -m tests.pythons $(ARGS)

cov: $(VENV)/.develops ## Branch coverage of the tests
	$(BIN)/coverage run -m unittest && $(BIN)/coverage report --skip-covered

clean: ## Remove what was installed and built
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and $(PYTHON) is %d.%d: make $(MAKECMDGOALS) PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.serves: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.develops: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
