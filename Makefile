# Every target sets itself up: Python >= 3.11 and make are all a bare machine needs.
#
#   make PYTHON=python3.12 test     use another interpreter to create .venv
#   make test ARGS="-k limits -x"   pass arguments to pytest, `sumpool demo` or the benchmark

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
ARGS   ?=

# One thread per test process: the processes already use the cores. At most 8 of them, because each
# one loads torch; tests of one group (those of a cluster) share a process. Compiled tests are kept.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest
JOBS   ?= -n auto --maxprocesses=8 --dist loadgroup

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo lock lock-check sbom test test-process test-all test-attack lint timings docs docs-site clean

help:  ## List the targets.
	@echo "sumpool: make <target>"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

demo: $(STAMP)  ## Train and compare on a small problem; figures and tables go to runs/demo.
	@echo "==> Running the demo, results go to runs/demo"
	$(BIN)/sumpool demo --out runs/demo $(ARGS)

test: $(STAMP)  ## Run the quick tests: no process of their own, no compiler.
	@echo "==> Running the quick tests"
	$(PYTEST) -m "not process and not gpu and not data and not attack" $(JOBS) $(ARGS)

# Kills and clusters depend on the moment: tests that fail are run once more, in new processes. Status 1 of
# pytest says that every test was run.
PROCESS := -m "process and not gpu and not data"
test-process: $(STAMP)  ## Run the tests that need processes or a compiler.
	@echo "==> Running the tests that need processes or a compiler"
	$(PYTEST) $(PROCESS) $(JOBS) $(ARGS) || { [ $$? -eq 1 ] && echo "==> Running those that failed once more" && \
		$(PYTEST) $(PROCESS) $(JOBS) $(ARGS) --last-failed --last-failed-no-failures none; }

test-all: $(STAMP)  ## Run all tests but those that need a GPU or real images.
	@echo "==> Running all tests but those that need a GPU or real images"
	$(PYTEST) -m "not gpu and not data and not attack" $(JOBS) $(ARGS)

test-attack: $(STAMP)  ## Kill, damage and deceive it 2,200 times (hours); counts go to docs/results/attack.
	@echo "==> Attacking: 100 kills, 1,600 damaged files, 306 hostile inputs, 200 hostile requests"
	ATTACK_KILLS=25 ATTACK_DAMAGES=200 ATTACK_INPUTS=34 \
		$(PYTEST) tests/attack --attack-report docs/results/attack $(ARGS)

lint: $(STAMP)  ## Check style, formatting and types.
	@echo "==> Checking style"
	$(BIN)/ruff check .
	@echo "==> Checking formatting"
	$(BIN)/ruff format --check .
	@echo "==> Checking types"
	$(BIN)/mypy
	@echo "==> Checking that the installed packages fit each other"
	$(BIN)/python -m pip check

timings: $(STAMP)  ## Time the solvers and poolings; results go to runs/timings.
	@echo "==> Timing the solvers and poolings, results go to runs/timings"
	$(BIN)/python benchmarks/pooling.py --out runs/timings $(ARGS)

docs: $(STAMP)  ## Run the examples in README.md and docs/, and check their links.
	@echo "==> Checking the examples and links of the documentation"
	$(PYTEST) README.md docs tests/test_docs.py $(ARGS)

docs-site: $(STAMP)  ## Build the documentation as a site into build/site; broken links and names without text fail.
	@echo "==> Building the site of the documentation"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site: build/site/index.html"

# Installing by hash is opt-in: a file that was built for one machine (a local version of torch, say) has
# another hash than the published one and would be refused, where constraints.txt accepts it.
LOCKED := requirements-hashed.txt
lock: $(STAMP)  ## Write the hashes of all pinned packages, for every platform, to requirements-hashed.txt.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--constraints constraints.txt --extra dev pyproject.toml --output-file $(LOCKED)

lock-check: $(STAMP)  ## Install everything by hash into build/locked, and check that it fits.
	@echo "==> Installing the packages of $(LOCKED) by hash into build/locked"
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/locked
	$(BIN)/uv pip install --quiet --require-hashes --requirements $(LOCKED) --python build/locked/bin/python
	$(BIN)/python -m pip --python build/locked/bin/python check

sbom: $(STAMP)  ## Write the bill of materials of the environment to build/sbom.json (CycloneDX).
	@mkdir -p build
	$(BIN)/uv tool run --quiet --from 'cyclonedx-bom>=7,<8' cyclonedx-py environment --pyproject pyproject.toml \
		--mc-type library --output-reproducible --output-format JSON --output-file build/sbom.json $(BIN)/python
	@echo "bill of materials: build/sbom.json"

clean:  ## Remove the environment, caches and everything under runs/.
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# The environment is rebuilt only when what is installed changes.
$(STAMP): pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
		command -v $(PYTHON) >/dev/null || { \
			echo "error: '$(PYTHON)' was not found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python"; exit 1; }; \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
			echo "error: sumpool needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name another one: make PYTHON=/path/to/python"; exit 1; }; \
		echo "==> Creating $(VENV) with $$($(PYTHON) -V)"; \
		$(PYTHON) -m venv $(VENV) || { \
			rm -rf $(VENV); echo "error: '$(PYTHON) -m venv' failed; some systems package it apart as python3-venv"; exit 1; }; \
	fi
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $(VENV) holds $$($(BIN)/python -V), sumpool needs Python 3.11 or newer; run 'make clean' first"; exit 1; }
	@if [ ! -x $(BIN)/uv ]; then \
		echo "==> Installing uv into $(VENV)"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check uv; \
	fi
	@echo "==> Installing sumpool and its pinned dependencies into $(VENV) (some minutes the first time)"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt --editable '.[dev]'
	@touch $@
