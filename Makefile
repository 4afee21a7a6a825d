PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Many images of containers set this variable, and then each of hundreds of processes compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup reproduce test test-quick test-avx2 test-gpu test-faults soak test-browser test-notebooks flower lint bench studies site address lab hashes
help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## */\1\t/p' Makefile | expand -t 14

setup: .venv/.installed  ## install the pinned packages into .venv

reproduce: setup  ## GC-Fed's tables and figures from the shipped runs, and one column anew; write figures/index.html
	.venv/bin/paperlib reproduce gc_fed
	.venv/bin/paperlib run gc_fed T5 --scale smoke --seeds 1 --only dataset=emnist_byclass

test: setup  ## lint, then every test, then every notebook against its stored outputs
	$(MAKE) -O -j 2 lint test-browser test-avx2 test-gpu  # a browser waits more than it works
	.venv/bin/python -m pytest -q -m 'not browser' -n auto --dist worksteal tests  # no worker is idle at the end
	PAPERLIB_RUNS="$$(mktemp -d)" PAPERLIB_FIGURES="$$(mktemp -d)" .venv/bin/python -m pytest -q -p tests.kernels \
	    --nbval -n auto --dist loadfile notebooks/your_method.ipynb notebooks  # a long one first; from the shipped runs alone

test-quick: setup  ## the methods, their mathematics and the structure of the package, in three minutes
	.venv/bin/python -m pytest -q -n auto tests/methods tests/math tests/quantities tests/test_structure.py

# Where a processor has more, oneDNN, torch and MKL keep to the instructions that a laptop or an AMD EPYC has.
test-avx2: setup  ## with AVX-512: what touches every network, as on a processor without it
	@if grep -q avx512f /proc/cpuinfo; then \
	    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	    .venv/bin/python -m pytest -q -n auto tests/networks tests/federated/test_measures.py tests/oneshot/test_methods.py \
	        --ignore-glob='*/test_initialisation.py' --ignore-glob='*/test_instruction_sets.py'; \
	else echo "no AVX-512 here: all other tests are those of AVX2"; fi

# Where there is no GPU, a pretend one that keeps to a GPU's rules; it must be loaded before torch, in its own process.
test-gpu: setup  ## every method and engine on a GPU, or on a pretend one
	.venv/bin/python -m pytest -q -n auto -p tests.gpu.pretend tests/gpu

test-faults: setup  ## kill runs, fill a disk, damage files, take nodes from a cluster
	.venv/bin/python -m pytest -q -m faults -n auto --dist worksteal tests/faults

soak: setup  ## 200 runs on a Ray cluster whose nodes come and go; MINUTES=30, SEED=0
	MINUTES="$(or $(MINUTES),30)" SEED="$(or $(SEED),0)" .venv/bin/python -m pytest -q -s -m faults tests/faults/soak.py

# Explorers wait for a kernel and the site for Sphinx: side by side they take half the time.
test-browser: setup  ## in a real browser: explorers, results, the whole site, hostile texts; installs Chromium where it is missing
	.venv/bin/python -m pytest -q -n auto --dist loadfile -m browser tests/browser

# An environment with a package that needs others than the project: they come first, and all else is the project's.
define environment
	"$(PYTHON)" -m venv $(1)
	$(1)/bin/pip install -q "$(2)"
	.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_paperlib.pth"
endef

# flwr pins other versions of some packages.
flower: setup  ## an environment with flwr, and a run over two SuperNodes on the loopback
	$(call environment,.venv-flower,flwr==1.42.0)
	PYTHONPATH="$(CURDIR)" .venv-flower/bin/python -m pytest -q tests/flower

# nbval has had no release since 2024; its peer brings packages of its own.
test-notebooks: setup  ## every notebook once more, by pytest-notebook in an environment of its own
	$(call environment,.venv-notebooks,pytest-notebook==0.11.0)
	PYTHONPATH="$(CURDIR)" .venv-notebooks/bin/python -m pytest -q -n auto tests/test_pytest_notebook.py

lint: setup  ## ruff and mypy
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

bench: setup  ## measure speed and memory, write benchmarks/RESULTS.md
	.venv/bin/python benchmarks/targets.py --write

studies: setup  ## write data/paper/descriptions, and the pages and the picture that docs/studies makes from runs; makes the runs that are missing
	for study in descriptions sizes findings fidelity comparison calibration settings equation_8 protocol front; do .venv/bin/python docs/studies/$$study.py || exit; done

site: setup  ## build the site of all notebooks, docs, reference and results into _site/html; nothing is executed
	.venv/bin/python docs/site.py

address:  ## write the repository's address from pyproject.toml into README.md and CITATION.cff
	"$(PYTHON)" docs/repository.py

# torch and torchvision are left out: their builds differ from machine to machine. uv, unlike pip, writes all hashes.
hashes:  ## write hashes.txt, by which `make setup` checks what it downloads, from constraints.txt
	"$(PYTHON)" -m venv .venv-uv
	.venv-uv/bin/pip install -q -c constraints.txt uv
	echo '# SHA-256 of every published file of the packages in constraints.txt; written by `make hashes`.' > hashes.txt
	grep -v -E '^(#|torch)' constraints.txt | .venv-uv/bin/uv pip compile -q --no-config --python "$(PYTHON)" \
	    --no-deps --generate-hashes --no-annotate --no-header - >> hashes.txt

lab: setup  ## open the start page of the notebooks
	.venv/bin/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/start.ipynb

# What the tests run on takes only files with known hashes; a package that hashes.txt does not name comes without.
# uv takes a third of pip's time, but knows nothing of the indexes that pip is told of: where it fails, pip goes on.
# pip would compile all files for a minute; nobody imports half of them, and Python compiles the rest on the way.
.venv/.installed: pyproject.toml constraints.txt hashes.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'paperlib needs Python 3.11 or newer, found "$(PYTHON)"; name another: make setup PYTHON=python3.12' >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	case "$$("$(PYTHON)" -c 'import platform as p, sys; print(sys.version_info[:2], p.system(), p.machine())')" in \
	    "(3, 11) Linux x86_64") \
	        { sed -n '/^uv==/,/[^\\]$$/p' hashes.txt | .venv/bin/pip install -q --require-hashes --no-deps -r /dev/stdin \
	            && .venv/bin/uv pip install -q --require-hashes --no-deps -r hashes.txt; } \
	            || .venv/bin/pip install -q --no-compile --require-hashes --no-deps -r hashes.txt;; \
	esac
	.venv/bin/pip install -q -c constraints.txt -e ".[notebooks,cluster,site,dev]"
	touch $@
