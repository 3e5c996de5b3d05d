# Two commands are enough: `make demo` trains and shows a model, `make test` proves the code.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The build of torch for CPUs: that of PyPI for Linux has 2 GB of CUDA libraries, which only an NVIDIA GPU needs.
CPU_TORCH := https://download.pytorch.org/whl/cpu

.PHONY: web demo test test-all quick kept journeys mutants models lint docs install clean

install: $(VENV)/.installed

$(VENV)/.torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	if test "$$(uname -s)" = Linux && ! command -v nvidia-smi > /dev/null; then \
	$(BIN)/pip install -q --retries 0 --timeout 10 --no-deps -c constraints.txt --index-url $(CPU_TORCH) torch 2> /dev/null \
	|| echo "$(CPU_TORCH) cannot be reached, so pip installs the torch of PyPI, which may be 2 GB larger"; fi
	touch $@

# What each command needs, in the same environment: the demo no tools for development.
$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	$(BIN)/pip install -q -c constraints.txt -e ".[demo]"
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.torch
	$(BIN)/pip install -q -c constraints.txt -e ".[dev,demo]"
	touch $@

# Into runs/demo, or beside it where that is there already: nothing is ever replaced.
demo: $(VENV)/.demo
	out=runs/demo; test ! -e $$out || out=$$out-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/regard train dates --baseline --out $$out

# Tests run side by side, one thread each: threads of one process that wait for a busy core cost more than they bring.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The tests of one part of the package, in a minute: a folder in tests/, a file test_ROOM.py there, or both.
IN_FOLDERS := $(patsubst tests/%/,%,$(dir $(wildcard tests/*/test_*.py)))
ROOMS := $(sort $(filter-out journeys,$(IN_FOLDERS)) $(patsubst tests/test_%.py,%,$(wildcard tests/test_*.py)))
ifneq ($(filter $(ROOM),$(ROOMS)),)
quick: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(wildcard tests/$(ROOM) tests/test_$(ROOM).py)
else
quick:
	@test -z "$(ROOM)" || echo "$(ROOM) is no room."
	@echo make quick ROOM=… runs the tests of one of these rooms: $(ROOMS)
	@test -z "$(ROOM)"
endif

test-all: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "slow or not slow"

# The tests of runs of earlier versions that `make test` leaves out because they are slow.
kept: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_kept.py -m slow

# What a user does in pages, in Chromium and in Node, with the wheel: it is installed into an environment of its own,
# where what it depends on is that of $(VENV).
JOURNEYS := build/journeys
journeys: install
	rm -rf $(JOURNEYS)
	$(BIN)/python -m build --wheel --outdir $(JOURNEYS) . > /dev/null
	$(BIN)/python -m venv --without-pip $(JOURNEYS)/venv
	$(BIN)/pip --python $(JOURNEYS)/venv/bin/python install -q --no-deps --no-index $(JOURNEYS)/*.whl
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	> "$$($(JOURNEYS)/venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/dependencies.pth"
	OMP_NUM_THREADS=1 $(JOURNEYS)/venv/bin/python -m pytest -n 2 -m "slow or not slow" \
	tests/journeys tests/web tests/browser tests/shipped tests/cli/test_cli_pages.py

# How many of 400 small random changes of the code a test notices: an hour or two on two cores.
mutants: install
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py

# Checks, builds and tests the scripts of the pages. The built files are committed: only who changes web/ needs Node.
web:
	@command -v npm > /dev/null || { echo "make web needs Node 20 or later, with npm"; exit 1; }
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build && npm test

# Trains the models that come with the library, into src/regard/shipped: about half an hour.
models: install
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/models.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes the prose of each topic of `regard explain` into the pages that include it.
docs: install
	$(BIN)/python docs/topics.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
