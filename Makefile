# Everything a newcomer needs: `make up` runs the server, `make test` runs everything that CI runs.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help up test audit lock test-client-suites test-console test-faults test-generated test-kubernetes-engine test-long test-reference test-runner test-tools check fmt bench bench-workspaces runner-tools tools clean
# Two targets must not build the same .venv at once, even under -j.
.NOTPARALLEL:

BIN := .venv/bin
RUN := .venv/.installed
TEST := .venv/.installed-test
SETUP := pyproject.toml scripts/setup-venv.sh $(wildcard requirements/*.lock)
# The tests of a file stay together and in order, because they may share a server. Files are not sorted by their number of
# tests: the slowest have few, would run last, and leave a core idle. ARGS="-n 0" runs everything in one process.
TWO_CORES := -n 2 --dist loadfile --no-loadscope-reorder
CACHES := .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

export PYTHON

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  ARGS="..." is passed on by up, test and bench; PYTHON=... chooses the interpreter for .venv\n'

up: $(RUN) ## start a server on this machine and print how to reach it
	@$(BIN)/fairlead up $(ARGS)

# Tests start many servers. Without compiled files, each of them would compile the whole package again.
test: $(TEST) test-tools check ## everything that CI runs: the checks, then the tests on two cores
	@$(BIN)/python -m compileall -q fairlead
	@$(BIN)/pytest $(TWO_CORES) -m 'not long' $(ARGS)

test-long: $(TEST) test-tools ## the tests that `make test` leaves out because they take long for what they show
	@$(BIN)/pytest $(TWO_CORES) -m long $(ARGS)

test-console: $(TEST) test-tools ## the tests of the web console in a real browser, also those marked as long
	@$(BIN)/pytest -n 0 tests/console tests/server/test_console.py tests/live/test_console.py $(ARGS)

test-faults: $(TEST) test-tools ## inject faults into real servers and stores (kill, stop, disconnect, fill the disk), and check what clients saw
	@TEST_STORES=all $(BIN)/pytest tests/live/test_replicas*.py tests/live/test_workers.py tests/chaos/conformance_on_stores.py
	@$(BIN)/python -m tests.chaos --full $(ARGS)

test-runner: $(TEST) test-tools ## kill a real runner with kill -9 in each phase of up, stop and delete: ROUNDS=30 with small processes, CONTAINER_ROUNDS=12 with dev containers
	@RUNNER_ROUNDS=$(or $(ROUNDS),30) CONTAINER_ROUNDS=$(or $(CONTAINER_ROUNDS),12) $(BIN)/pytest -n 0 tests/live/test_runner.py tests/live/devcontainer_rounds.py $(ARGS)

test-kubernetes-engine: $(TEST) test-tools ## workspaces in Pods of a real node, with a runner killed ROUNDS=8 times in each step of up, and in stop and delete: REFERENCE=DIR as for test-reference
	@test -n "$(REFERENCE)" || { echo 'error: REFERENCE is not set; run: REFERENCE=DIR make test-kubernetes-engine, where DIR/bin has the binaries of Kubernetes' >&2; exit 2; }
	@REFERENCE="$(REFERENCE)" RUNNER_ROUNDS=$(or $(ROUNDS),8) $(BIN)/pytest -n 0 tests/reference/test_workspaces.py $(ARGS)

test-generated: $(TEST) ## a million generated requests by ten identities; ARGS="--count 100000 --state FILE" sends fewer, or resumes
	@$(BIN)/python -m tests.generated $(ARGS)

test-reference: $(TEST) test-tools ## compare with a real Kubernetes: REFERENCE=DIR with DIR/bin/kube-apiserver and its other binaries, or REF=URL TOKEN=...
	@test -n "$(REFERENCE)$(REF)" || { echo 'error: neither REFERENCE nor REF is set; run: REFERENCE=DIR make test-reference, where DIR/bin has the binaries of Kubernetes, or: REF=URL TOKEN=... make test-reference, with a running kube-apiserver' >&2; exit 2; }
	@if [ -n "$(REF)" ]; then $(BIN)/python -m tests.conformance.generated --reference "$(REF)" --token "$(TOKEN)" $(ARGS); fi
	@if [ -n "$(REFERENCE)" ]; then REFERENCE="$(REFERENCE)" $(BIN)/pytest -n 0 tests/reference $(ARGS); fi

test-client-suites: $(TEST) test-tools ## kubectl on Fairlead and on a real Kubernetes, side by side, and the test suites of Python clients: REFERENCE=DIR, or REF=URL TOKEN=...
	@$(BIN)/python -m tests.client_suites $(if $(REFERENCE),--reference "$(REFERENCE)") $(if $(REF),--reference-url "$(REF)" --token "$(TOKEN)") $(ARGS)

check: $(TEST) ## style, format, types and import rules
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'not formatted: run `make fmt`' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out="$$($(BIN)/lint-imports --no-logo --no-cache 2>&1)" || { echo "$$out" >&2; exit 1; }
	@echo 'checks passed: style, format, types, imports'

audit: $(RUN) ## check the locked dependencies for known vulnerabilities; exit code 1: found some, 3: could not check
	@$(BIN)/python scripts/audit_dependencies.py $(ARGS)

lock: ## update requirements/*.lock after the dependencies have changed; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

fmt: $(TEST) ## format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --exit-zero
	@$(BIN)/ruff format --quiet

bench: $(TEST) ## measure the server under load, next to an upper bound; ARGS=--quick only shows that it works
	@scripts/setup-tools.sh wrk
	@$(BIN)/python -m bench $(ARGS)

bench-workspaces: $(TEST) test-tools ## measure a runner with 20 dev containers; ARGS="--count 5" runs fewer
	@$(BIN)/python -m bench.workspaces $(ARGS)

tools: ## unpack kubectl into .tools/bin, for the first session
	@scripts/setup-tools.sh kubectl

runner-tools: ## install what `fairlead runner start` needs, as root: podman, and the dev container CLI with Node.js (.tools/bin)
	@scripts/setup-tools.sh podman devcontainer

test-tools: ## install the programs that tests use: kubectl in three versions (.tools/bin), PostgreSQL, etcd, wrk, Chromium, podman and the dev container CLI
	@scripts/setup-tools.sh kubectl kubectl-1.32 kubectl-1.20 postgresql etcd etcdctl faketime wrk chromium axe podman devcontainer workspace

clean: ## remove .venv, .tools and all caches, but no data of servers
	@rm -rf .venv .tools $(CACHES)
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): $(SETUP)
	@scripts/setup-venv.sh

$(TEST): $(SETUP)
	@scripts/setup-venv.sh test
