# make demo    set up, and run one rabbit job through its whole life
# make test    set up, and run the tests
# make test-all   the same, and what is long goes further: about an hour on two CPUs
# make test-flux   the plugins in plugins/flux, in a real Flux; ARGS="-k epilog" for some
# make test-vm   what takes another kernel, in guests that QEMU emulates: five minutes at most
# make test-kube KUBECONFIG=FILE   run the client contract tests against a real cluster
# make check   what CI checks besides the tests: format, lint, types, layers
# make bench   measure, print a table, append to benchmarks/results.jsonl (ONLY=pattern)
# make crash   stop jobs of every kind after each of their writes, and see what comes of them (ARGS="--every 10 --twice")
# make mutants  break the code in small ways and show which of them no test notices (ARGS="--sample 50")
# make docs    generate the documents that come from tables

VENV ?= .venv
BIN = $(VENV)/bin
ONLY ?= .
# One more than there are CPUs, up to four: tests with real processes wait much of their time.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 3 ? n + 1 : 4)))
ARGS ?=

# Hundreds of processes that the tests start import the same modules: they are compiled once, also
# where the shell asks for nothing to be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-flux test-vm test-kube check bench crash mutants docs clean

demo: $(VENV)/.ready
	@$(BIN)/warren demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --durations 40 $(ARGS)

test-all:
	@echo 'Loads, soaks and fault schedules at full length: about an hour on two CPUs.'
	WARREN_TEST_ALL=1 $(MAKE) test

# The tests build the plugins for themselves; what they need is said here, where they would skip.
test-flux: $(VENV)/.dev
	@command -v flux >/dev/null || { echo 'flux is not installed, or not on the PATH' >&2; exit 2; }
	@$(MAKE) -s -C plugins/flux
	$(BIN)/pytest tests/flux $(ARGS)

# What guests are made of is downloaded and unpacked once, for this user; nothing is installed.
test-vm: $(VENV)/.dev
	@$(BIN)/python -m tools.guests
	WARREN_TEST_VM=1 $(BIN)/pytest tests/vm -n 2 --dist load --durations 10 $(ARGS)

# What clients are promised, told to every cluster. It works in namespaces and API groups of its
# own, and fails if it cannot take them away again.
CONTRACT = $(addprefix tests/kube/test_,client.py same.py official.py kubectl.py)

# The shell's own KUBECONFIG is not asked: a cluster is tested because somebody has named it here.
test-kube: $(VENV)/.dev
ifneq ($(origin KUBECONFIG),command line)
	@echo 'Name the cluster: make test-kube KUBECONFIG=FILE' >&2; exit 2
else
	WARREN_TEST_KUBECONFIG='$(abspath $(KUBECONFIG))' $(BIN)/pytest $(CONTRACT) $(ARGS)
endif

check: $(VENV)/.dev
	$(BIN)/ruff format --check src tests benchmarks tools hooks plugins
	$(BIN)/ruff check src tests benchmarks tools hooks plugins
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --only '$(ONLY)'

crash: $(VENV)/.dev
	$(BIN)/python -m tests.faults.crashes $(ARGS)

mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/python -m tools.diagrams

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutants

LIBPMI = src/warren/instance/shell/libpmi.c

$(VENV)/.ready: pyproject.toml constraints.txt tools/venv tools/packages tools/pmi $(LIBPMI)
	@tools/packages
	@tools/venv $(VENV)
	@tools/pmi $(VENV)
	@echo '$(abspath $(VENV))' >$@

# It says where it was made: elsewhere, it is made again.
ifneq ($(file <$(VENV)/.ready),$(abspath $(VENV)))
.PHONY: $(VENV)/.ready
endif

$(VENV)/.dev: $(VENV)/.ready
	@tools/venv $(VENV) dev
	@touch $@
