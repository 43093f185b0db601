# Every target makes the environment it needs in .venv; nothing to set up by hand.
#   make demo PYTHON=python3.12     another interpreter (>= 3.10)
#   make test ARGS="-k darcy -x"    options for the command behind a target
#   make docs EXAMPLES=1            with the examples run, which takes minutes
#   make upstream UPSTREAM=path     pull requests in a checkout of neuraloperator
#   make upstream UPSTREAM=path UNDO=1    takes them out again

PYTHON ?= python3
WORKERS ?= 2
EXAMPLES ?= 0
ARGS ?=
UPSTREAM ?=
UNDO ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Some virtual machines announce AMX and trap its instructions: torch then dies of an
# illegal instruction in a product of bfloat16 matrices. Tests do without it.
NO_AMX := ONEDNN_MAX_CPU_ISA=AVX512_CORE

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test lint format benchmark docs upstream test-upstream clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

demo: $(STAMP) ## train FNO, TFNO, DINOZAUR and its Bayesian version; table and picture
	@$(BIN)/python -m benchmarks demo $(ARGS)

test: $(STAMP) ## run the tests
	@$(ONE_THREAD) $(NO_AMX) $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(STAMP) ## ruff check, ruff format --check, mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP) ## let ruff fix and format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: $(STAMP) ## time and memory of one layer and of whole models
	@$(BIN)/python -m benchmarks cost $(ARGS)

docs: $(DOCS_STAMP) ## build the site into docs/_build/html, with warnings as errors
	@EXAMPLES=$(EXAMPLES) $(ONE_THREAD) $(BIN)/python -m sphinx -q -W -n --keep-going \
	    -d docs/_build/doctrees $(ARGS) docs docs/_build/html
	@echo "docs/_build/html/index.html"

upstream: $(STAMP) ## try the pull requests in UPSTREAM=path/to/neuraloperator
	@test -n "$(UPSTREAM)" || { echo "make $@ UPSTREAM=path/to/neuraloperator" >&2; exit 1; }
	@$(ONE_THREAD) $(NO_AMX) $(BIN)/python docs/upstream/apply.py \
	    $(if $(UNDO),--undo) $(UPSTREAM) $(ARGS)

# Compiled first: a warning of its source would be an error in the tests.
test-upstream: $(STAMP) ## run the tests against UPSTREAM=path/to/neuraloperator
	@test -n "$(UPSTREAM)" || { echo "make $@ UPSTREAM=path/to/neuraloperator" >&2; exit 1; }
	@test -d "$(UPSTREAM)/neuralop" || { echo "$(UPSTREAM) has no neuralop" >&2; exit 1; }
	@$(BIN)/python -W ignore -m compileall -q "$(UPSTREAM)/neuralop"
	@PYTHONPATH="$(abspath $(UPSTREAM))" $(ONE_THREAD) $(NO_AMX) $(BIN)/python -m pytest \
	    -n $(WORKERS) $(ARGS)

clean: ## remove the environment, caches and build products (keeps the Darcy cache)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache \
	    .hypothesis docs/_build docs/auto_examples docs/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The whole output of pip is kept in install.log; on the screen are the names only.
NAMES := awk '/^Collecting / { sub(/[^A-Za-z0-9_.-].*/, "", $$2); \
    column += length($$2) + 1; if (column > 78) { printf "\n "; column = 0 } \
    printf " %s", $$2; fflush() } \
    /^Installing collected/ { printf "\ninstalling all of it ...\n"; fflush() } \
    /^ERROR/ { printf "\n%s\n", $$0 }'

# Installs the package with one of its extras.
define INSTALL
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
	    -c constraints.txt -e '.[$(1)]' 2>&1 | tee $(VENV)/install.log | $(NAMES) \
	    || { tail -n 20 $(VENV)/install.log >&2; \
	         echo "Installation failed; all of it is in $(VENV)/install.log" >&2; exit 1; }
endef

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "Python 3.10 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (minutes, when PyTorch has to be fetched):"
	$(call INSTALL,dev)
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@echo "Adding Sphinx to $(VENV):"
	$(call INSTALL,docs)
	@touch $@
