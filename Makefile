PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.PHONY: help demo check test lint types imports quick unit doctests docs pages paper coverage house mutation fuzz soak bench release-check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(INSTALLED)  ## source localization at four rounds: table, figure, HTML report
	$(BIN)/graphact-lab run rounds --preset quick --device cpu --out out/demo

check: $(READY) lint types imports quick  ## every check and the quick tests: two minutes on two cores

test: $(READY) lint types imports unit  ## every check and every test

lint: $(READY)  ## style, names and sentences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/style.py

types: $(READY)  ## types of the packages
	$(BIN)/mypy

imports: $(READY)  ## direction of imports between packages and layers
	$(BIN)/lint-imports --no-cache

# one process a core, each with one thread: more threads than cores wait for each other
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope

quick: $(READY)  ## the tests that are not marked as slow
	$(PYTEST) -m "not slow"

unit: $(READY)  ## all tests and examples in the documentation
	$(PYTEST)

doctests: $(READY)  ## examples of README, documentation and docstrings, as they stand
	$(PYTEST) packages/*/src packages/*/tests/*/test_documentation.py tests/test_package.py tests/test_site.py

docs: $(READY)  ## the site, with its gallery executed: out/site/index.html
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html -d out/site-cache docs out/site
	@echo 'out/site/index.html'

pages: $(READY)  ## docs/tables, docs/results.md and its kin, and their figures, from the rows in results/
	$(BIN)/python studies/tables.py
	$(BIN)/python studies/page.py
	$(BIN)/python studies/draw.py

paper: $(READY)  ## LaTeX of the reproducibility paper, from docs/tables; its PDF where an engine is installed
	$(BIN)/python studies/paper.py --out out/paper

coverage: $(READY)  ## all tests, and which lines they reach: a table, and out/coverage/index.html
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest --numprocesses auto --dist loadscope
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report --skip-covered

mutation: $(READY)  ## faults put into a sample of the code, half an hour at most: how many do tests notice?
	$(BIN)/python tests/mutation.py

fuzz: $(READY)  ## random calls against plain loops, damaged files for every reader: MINUTES=60 SEED=7
	$(BIN)/python tests/fuzz.py --minutes $(or $(MINUTES),5) --seed $(or $(SEED),0)

soak: $(READY)  ## agents for a quarter of an hour: 10,000 networks with faults, a million hostile datagrams
	$(BIN)/python packages/graphact-agents/tests/agents/soak.py --seeds $(or $(SEEDS),10000)
	$(BIN)/python packages/graphact-agents/tests/agents/hostile.py --datagrams 1000000
	$(BIN)/python examples/flocking/flock.py --agents 20 --rate 20 --seconds 60 --loss 0.1

# what the demo needs: the three packages; $(READY) adds the developers' tools to the same environment
$(INSTALLED): constraints.txt requirements.txt packages/graphact/pyproject.toml packages/graphact-agents/pyproject.toml packages/graphact-lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "graphact needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --requirement requirements.txt
	@touch $@

$(READY): $(INSTALLED) pyproject.toml requirements-dev.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement requirements-dev.txt
	@touch $@

release-check: $(READY)  ## wheel and sdist: built, looked into, installed with each extra, tested; half an hour
	$(BIN)/python tests/release.py

house: $(READY)  ## lines of each room, words of the site, names that stand for two things
	$(BIN)/python tests/house.py

bench: $(READY)  ## speed of activations, compiled code, building graphs and fleets on the CPU
	$(BIN)/python benchmarks/everyday.py --out out/bench/everyday.json
	$(BIN)/python benchmarks/compiled.py --out out/bench/compiled.json
	$(BIN)/python benchmarks/graph_building.py
	$(BIN)/python benchmarks/activations.py --out out/bench
	$(BIN)/python benchmarks/fleet.py

clean:  ## remove the virtual environment and caches; results in out/ stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
