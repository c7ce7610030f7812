# `make demo` and `make test` set everything up first (scripts/setup.sh), then do their job.
VENV ?= .venv
python := $(VENV)/bin/python
PYTEST_ARGS ?=
export VENV

.PHONY: demo test test-gpu lint setup clean
.DEFAULT_GOAL := test

demo: setup
	@VENV=$(VENV) examples/demo.sh

test: setup
	$(python) -m pytest $(PYTEST_ARGS)

# What needs an NVIDIA GPU; the programs are built first.
PROGRAMS ?= build/programs
test-gpu: setup
	@test -e $(PROGRAMS)/programs.json || $(python) -m benchmarks.prepare $(PROGRAMS)
	R3LLVM_BENCH_PROGRAMS=$(PROGRAMS) $(python) -m pytest -m cuda $(PYTEST_ARGS)

lint:
	@scripts/setup.sh lint
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	@scripts/lint.sh

setup:
	@scripts/setup.sh

clean:
	rm -rf build dist $(VENV) r3llvm/lib r3llvm/_native*.so *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
