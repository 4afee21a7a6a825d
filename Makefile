PYTHON ?= $(shell command -v python3.11 || command -v python3)

.PHONY: help setup reproduce test test-faults test-browser lint bench lab
help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## */\1\t/p' Makefile | expand -t 14

setup: .venv/.installed  ## install the pinned packages into .venv

reproduce: setup  ## run GC-Fed's tables and figures at smoke scale, write figures/index.html
	.venv/bin/paperlib reproduce gc_fed --scale smoke --recompute

test: lint test-browser test-faults  ## lint, then every test, then every notebook against its stored outputs
	.venv/bin/python -m pytest -q -n auto tests
	PAPERLIB_RUNS="$$(mktemp -d)" PAPERLIB_FIGURES="$$(mktemp -d)" \
	    .venv/bin/python -m pytest -q --nbval -n auto --dist loadfile notebooks  # from the shipped runs alone

test-faults: setup  ## kill runs, fill a disk, damage files, take nodes from a cluster
	.venv/bin/python -m pytest -q -m faults -n auto tests/faults

test-browser: setup  ## use every explorer in a real browser; installs Chromium where it is missing
	.venv/bin/python -m pytest -q -m browser tests/browser

lint: setup  ## ruff and mypy
	.venv/bin/ruff check
	.venv/bin/mypy

bench: setup  ## measure speed and memory, write benchmarks/RESULTS.md
	.venv/bin/python benchmarks/targets.py --write

lab: setup  ## open the start page of the notebooks
	.venv/bin/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/start.ipynb

.venv/.installed: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'paperlib needs Python 3.11 or newer, found "$(PYTHON)"; name another: make setup PYTHON=python3.12' >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	.venv/bin/pip install -q -c constraints.txt -e ".[notebooks,cluster,dev]"
	touch $@
