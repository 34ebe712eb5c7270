# Every target sets up its own .venv first (tools/setup.sh): some minutes the first time, nothing after that.
#   make lab PYTHON=python3.12     choose the Python
#   make notebooks FORCE=1         execute every notebook again, not only those whose source changed
BIN := .venv/bin
PYTHON ?=
FORCE ?=
export PYTHON

# Threads that wait for each other must sleep: on a machine that does something else too, spinning ones make PyTorch ten times slower.
export OMP_WAIT_POLICY ?= passive

# Tests of one file, and cells of one notebook, stay together; files run side by side.
SPREAD := -n 2 --dist loadscope

# Tests of one lesson, in one page, stay together.
PAGES := -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.NOTPARALLEL: # two set-ups at once would write into the same .venv
.PHONY: help lab fetch test test-all check notebooks site clean test-browser setup-lab setup-test setup-site setup-browser

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

lab: setup-lab ## open JupyterLab on the first lesson; your own exercises are in work/
	@$(BIN)/kvcourse fetch smollm2 || echo "The real model is missing, so cells that use it will stop and say so; everything else works."
	@$(BIN)/kvcourse start
	@$(BIN)/kvcourse lab

fetch: setup-lab ## get the real model (SmolLM2-135M-Instruct), once
	@$(BIN)/kvcourse fetch smollm2

test: setup-test fetch ## run the tests and every notebook (under 15 minutes)
	$(BIN)/python -m pytest $(SPREAD) --no-loadscope-reorder --nbval --nbval-current-env tests notebooks solutions

test-all: setup-test fetch ## the same with the full counts
	KVCOURSE_FULL=1 $(BIN)/python -m pytest $(SPREAD) --no-loadscope-reorder --nbval --nbval-current-env tests notebooks solutions

check: setup-test ## formatting, lint, types and structure
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/structure

notebooks: setup-test fetch ## rebuild what changed in sources/, and the generated pages
	$(BIN)/python -m tools.notebooks build $(if $(FORCE),--force)
	$(BIN)/python -m tools.docs_map
	$(BIN)/python -m tools.kill_table

test-browser: setup-browser fetch ## open every lesson in a real browser, and use its widgets
	$(BIN)/python -m pytest -q tests/browser/test_speed.py
	$(BIN)/python -m pytest $(PAGES) tests/browser --ignore=tests/browser/test_speed.py

site: setup-site ## build the course as web pages that open from disk, with every link checked
	$(BIN)/python -m tools.site

clean: ## remove .venv and everything that tools left behind (never work/)
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +

setup-lab:
	@sh tools/setup.sh lab

setup-test:
	@sh tools/setup.sh test

setup-site:
	@sh tools/setup.sh site

setup-browser:
	@sh tools/setup.sh browser
