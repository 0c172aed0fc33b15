# Everything a newcomer needs: `make up` runs the server, `make test` runs everything that CI runs.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help up test audit lock test-faults test-generated test-reference check fmt bench tools clean
# Two targets must not build the same .venv at once, even under -j.
.NOTPARALLEL:

BIN := .venv/bin
RUN := .venv/.installed
TEST := .venv/.installed-test
SETUP := pyproject.toml scripts/setup-venv.sh $(wildcard requirements/*.lock)
# A file's tests stay together and in order, for they may share a server. Files come in order, too: by the number of their
# tests, the few that take longest would come last and leave a core idle. ARGS="-n 0" is everything in one process.
TWO_CORES := -n 2 --dist loadfile --no-loadscope-reorder
CACHES := .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

export PYTHON

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  ARGS="..." is handed on by up, test and bench; PYTHON=... chooses the interpreter for .venv\n'

up: $(RUN) ## start a server on this machine and print how to reach it
	@$(BIN)/fairlead up $(ARGS)

# Tests start many servers. Where Python keeps no compiled files, each of them would compile the whole package again.
test: $(TEST) tools check ## everything that CI runs: the checks, then the tests on two cores
	@$(BIN)/python -m compileall -q fairlead
	@$(BIN)/pytest $(TWO_CORES) $(ARGS)

test-faults: $(TEST) tools ## kill, stop, cut off and fill up real servers and stores, and check what clients saw
	@TEST_STORES=all $(BIN)/pytest tests/live/test_replicas*.py tests/chaos/conformance_on_stores.py
	@$(BIN)/python -m tests.chaos --full $(ARGS)

test-generated: $(TEST) ## a million generated requests by ten identities; ARGS="--count 100000 --state FILE" for fewer, or to go on later
	@$(BIN)/python -m tests.generated $(ARGS)

test-reference: $(TEST) tools ## the tests that need a real Kubernetes: REFERENCE=DIR, with DIR/bin/kube-apiserver and its parts
	@test -n "$(REFERENCE)" || { echo 'error: say where the binaries are: REFERENCE=DIR make test-reference' >&2; exit 2; }
	@REFERENCE="$(REFERENCE)" $(BIN)/pytest -n 0 tests/reference $(ARGS)

check: $(TEST) ## style, format, types, and who may import whom
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'not formatted: run `make fmt`' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out="$$($(BIN)/lint-imports --no-logo --no-cache 2>&1)" || { echo "$$out" >&2; exit 1; }
	@echo 'checks passed: style, format, types, imports'

audit: $(RUN) ## look up what the locks name among known vulnerabilities; 1: some were found, 3: they could not be looked up
	@$(BIN)/python scripts/audit_dependencies.py $(ARGS)

lock: ## write requirements/*.lock anew after a change of the dependencies; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

fmt: $(TEST) ## format the code and put its imports in order
	@$(BIN)/ruff check --quiet --fix --exit-zero
	@$(BIN)/ruff format --quiet

bench: $(TEST) ## measure the server under load, beside a ceiling; ARGS=--quick to see that it works
	@scripts/setup-tools.sh wrk
	@$(BIN)/python -m bench $(ARGS)

tools: ## the programs that tests talk to: kubectl in three versions (.tools/bin), PostgreSQL, etcd and wrk
	@scripts/setup-tools.sh kubectl kubectl-1.32 kubectl-1.20 postgresql etcd etcdctl faketime wrk

clean: ## remove .venv, .tools and every cache; never a server's data
	@rm -rf .venv .tools $(CACHES)
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): $(SETUP)
	@scripts/setup-venv.sh

$(TEST): $(SETUP)
	@scripts/setup-venv.sh test
