# Every target does its own set-up. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
ARGS ?=
VENV := .venv
OTHER := .venv-other
PY := $(VENV)/bin/python
# a first start compiles once, later ones read bytecode
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(VENV)/ready ## a virtual environment in .venv with everything
$(VENV)/ready: pyproject.toml requirements.lock .ci/python.sh
	@.ci/python.sh setup $(VENV)
	@touch $@

.PHONY: run
run: setup ## item page view features of real users: the main job over the sample
	@$(VENV)/bin/walle run configs/ipv.yaml $(ARGS)

.PHONY: test
test: setup fmt-check lint types arch ## everything that CI runs
	@$(PY) -m pytest -m "not slow" $(ARGS)
	@.ci/other-python.sh $(OTHER) $(PY)

.PHONY: fmt fmt-check lint types arch
fmt: setup ## format the code
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix --select I .
fmt-check: setup
	@$(VENV)/bin/ruff format --check -q .
lint: setup ## ruff, all rules
	@$(VENV)/bin/ruff check -q .
types: setup ## mypy, strict
	@$(VENV)/bin/mypy
arch: setup ## layers and import contracts
	@$(VENV)/bin/lint-imports --no-cache > .lint-imports.txt || { cat .lint-imports.txt; exit 1; }
	@tail -n 3 .lint-imports.txt && rm -f .lint-imports.txt

.PHONY: unit prop chaos long
unit: setup ## unit tests alone
	@$(PY) -m pytest tests/unit $(ARGS)
prop: setup ## property tests alone
	@$(PY) -m pytest tests/property $(ARGS)
chaos: setup ## 500 times kill -9, then compare byte for byte
	@$(PY) -m walle_stream.testing.chaos --kills 500 --json bench/results/chaos.json $(ARGS)
long: setup ## the long forms of property and chaos tests
	@$(PY) -m pytest -m slow $(ARGS)

.PHONY: bench-pipeline bench-report
bench-pipeline: setup ## speed of the main job, a plain Python loop beside it
	@$(PY) bench/pipeline.py $(ARGS)
bench-report: setup ## tables from bench/results
	@$(PY) bench/report.py $(ARGS)

.PHONY: lock clean
lock: setup ## pin all versions anew
	@.ci/lock.sh
clean: ## remove what the targets made
	@rm -rf $(VENV) $(OTHER) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
