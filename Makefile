# Everything happens in .venv. `make demo` and `make test` set it up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format docs clean

demo: $(VENV)/.ready
	$(BIN)/datasieve audit fixtures/demo --out demo-report --trainer kohya --batch-size 4

test: $(VENV)/.ready-dev
	$(BIN)/ruff check datasieve tests benchmarks
	$(BIN)/ruff format --check datasieve tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix datasieve tests benchmarks
	$(BIN)/ruff format datasieve tests benchmarks

docs: $(VENV)/.ready
	$(BIN)/python -m datasieve.reporting.rule_pages docs/rules

# torch and torchvision first and together, so that pip settles on builds that belong to each other.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch torchvision
	$(BIN)/python -m pip install --quiet --editable '.[text]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[dev,text,train]'
	touch $@

clean:
	rm -rf $(VENV) demo-report
