# make demo    set up, and run one rabbit job through its whole life
# make test    set up, and run all tests
# make check   what CI checks besides the tests: format, lint, types, layers
# make bench   measure, print a table, append to benchmarks/results.jsonl (ONLY=pattern)
# make docs    generate the documents that come from tables

VENV ?= .venv
BIN = $(VENV)/bin
ONLY ?= .
ARGS ?=

.PHONY: demo test check bench docs clean

demo: $(VENV)/.ready
	@$(BIN)/warren demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --only '$(ONLY)'

docs: $(VENV)/.dev
	$(BIN)/python tools/diagrams.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.ready: pyproject.toml constraints.txt tools/venv tools/packages
	@tools/packages
	@tools/venv $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.ready
	@tools/venv $(VENV) dev
	@touch $@
