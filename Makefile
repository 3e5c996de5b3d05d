# Two commands are enough: `make demo` trains and shows a model, `make test` proves the code.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all lint install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev,demo]"
	touch $@

demo: install
	$(BIN)/regard train dates --baseline --overwrite --out runs/demo

test: install
	$(BIN)/python -m pytest

test-all: install
	$(BIN)/python -m pytest -m "slow or not slow"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
