# Two commands are enough: `make demo` trains and shows a model, `make test` proves the code.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all kept mutants lint docs install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev,demo]"
	touch $@

# Into runs/demo, or beside it where that is there already: nothing is ever replaced.
demo: install
	out=runs/demo; test ! -e $$out || out=$$out-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/regard train dates --baseline --out $$out

# Tests run side by side, one thread each: threads of one process that wait for a busy core cost more than they bring.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-all: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "slow or not slow"

# The tests of runs of earlier versions that `make test` leaves out because they are slow.
kept: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_kept.py -m slow

# How many of 400 small random changes of the code a test notices: an hour or two on two cores.
mutants: install
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes the prose of each topic of `regard explain` into the pages that include it.
docs: install
	$(BIN)/python docs/topics.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
