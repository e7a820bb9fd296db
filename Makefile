# A stamp in .venv is written once an install has succeeded: a second run has nothing to do, a changed lock
# installs again, and an interrupted install is tried again.

PYTHON ?=
CUDA ?=
ARGS ?=

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet install
PYTEST := $(PY) -m pytest -n 2 --dist loadfile
COMPILE := $(PY) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest \
	--no-annotate --custom-compile-command "make lock" pyproject.toml --group build

CREATED := .venv/.created
CORE := .venv/.core
DEV := .venv/.dev
GPU := $(addprefix .venv/.cuda,$(filter 12 13,$(CUDA)))

# An environment knows its own place: in a moved or copied folder it is made anew.
ifneq ($(shell cat .venv/.created 2>/dev/null),$(CURDIR))
.PHONY: $(CREATED)
endif

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all lint format types bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(CORE) $(GPU) ## create .venv and install the project (options: PYTHON=python3.12, CUDA=12 or 13)
	$(if $(CUDA),$(if $(GPU),,$(error CUDA is '$(CUDA)': make it 12 or 13 for a GPU, or leave it out for the CPU)))
	@$(PY) -c 'import platform; from importlib.metadata import version; \
	print("Ready: .venv has Python", platform.python_version(), "and jax", version("jax") + ".")'

quickstart: setup ## play a few published seeds with four simple agents (a minute or two, the install included)
	@$(PY) scripts/quickstart.py $(ARGS)

test: $(DEV) ## run the tests, without the slow ones (ARGS="-k chain" passes options on)
	$(PYTEST) $(ARGS)

test-all: $(DEV) ## run all tests, the slow ones and thorough property tests too
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "" $(ARGS)

lint: $(DEV) ## check style
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(DEV) ## put style right
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(DEV) ## check types
	$(PY) -m mypy

bench: setup ## measure speed on this machine
	@$(PY) scripts/bench.py $(ARGS)

docs: $(DEV) ## check the docs: links, commands and the code they show
	$(PYTEST) -m "" tests/test_docs.py $(ARGS)

# Both locks are cut from one resolution with every extra, so that any extra installs on top of them without moving a pin.
lock: $(CREATED) ## pin the newest versions that fit in requirements.lock and requirements-dev.lock
	$(PIP) uv
	$(COMPILE) --all-extras --output-file .venv/all-extras.lock
	$(COMPILE) --constraint .venv/all-extras.lock --output-file requirements.lock
	$(COMPILE) --constraint .venv/all-extras.lock --extra dev --output-file requirements-dev.lock

clean: ## remove .venv, caches and builds (never runs)
	rm -rf .venv build dist
	find . -type d \( -name __pycache__ -o -name '.*_cache' -o -name .hypothesis \) -prune -exec rm -rf {} +

# Candidates are run, not only looked up: a version manager's stand-in may exist and still start nothing.
$(CREATED):
	@for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    "$$python" -m venv --clear .venv && echo "$(CURDIR)" >$@; exit; \
	  fi; \
	done; \
	echo "$(if $(PYTHON),$(PYTHON) is not Python 3.11 or newer,Found no Python 3.11 or newer): name one that is, for example 'make setup PYTHON=python3.12'." >&2; \
	exit 1

$(CORE): $(CREATED) requirements.lock pyproject.toml
	@echo "Installing the pinned dependencies into .venv (once; half a minute on a fast connection) ..."
	@$(PIP) --no-deps -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(CORE) requirements-dev.lock
	@echo "Installing the pinned development tools into .venv (once) ..."
	@$(PIP) --no-deps -r requirements-dev.lock
	@touch $@

# The GPU plug-in must match jax to the digit, so the lock constrains it.
.venv/.cuda%: $(CORE)
	@echo "Installing jax for CUDA $* into .venv (once; several GB) ..."
	@$(PIP) --constraint requirements.lock "jax[cuda$*]"
	@touch $@
