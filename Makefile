# Everything a newcomer needs: `make up` runs the server, `make test` tests it, `make test-more` tests it with everything real.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: test-agents docs screenshots reference manifests help up test audit lock test-barriers test-cgroup2 test-client-suites test-console test-faults test-generated test-kubernetes-engine test-long test-more test-pythons test-reference test-runner test-times test-tools test-upgrade check check-style fmt bench bench-workspaces helm-tools runner-tools tools clean dist release sbom test-container bench-console
# Two targets must not build the same .venv at once, even under -j.
.NOTPARALLEL:

BIN := .venv/bin
RUN := .venv/.installed
TEST := .venv/.installed-test
DOCS := .venv-docs/.installed
SETUP := pyproject.toml scripts/setup-venv.sh $(wildcard requirements/*.lock)
# The tests of a file stay together and in order, because they may share a server. Files are not sorted by their number of
# tests: the slowest have few, would run last, and leave a core idle. Three processes for two cores, because tests with
# real servers wait about a third of their time. ARGS="-n 0" runs everything in one process.
PROCESSES := -n 3 --dist loadfile --no-loadscope-reorder
PYTHONS := 3.11:bookworm 3.14:sid
CACHES := .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

export PYTHON
# A run of the tests imports each module in many processes. All but the first should find it compiled.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  ARGS="..." is passed on by up, test and bench; PYTHON=... chooses the interpreter for .venv\n'

up: $(RUN) ## start a server on this machine and print how to reach it
	@PATH="$$PATH:$(CURDIR)/.tools/bin" $(BIN)/fairlead up $(ARGS)

# Tests start many servers. Without compiled files, each of them would compile the whole package again.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/(test_|conftest)' fairlead bench scripts tests

# Which tests are in `test` and which in `test-more` is in tests/parts.py; together they are all but the long ones.
# Types are checked meanwhile: without a cache that takes a minute on one core.
test: $(TEST) test-tools check-style ## for every day: the checks, all tests that start no processes, and an end-to-end test of each area; 8 minutes on two cores
	@$(COMPILE)
	@types="$$(mktemp)"; { scripts/check-console.sh types && $(BIN)/mypy --no-error-summary; } >"$$types" 2>&1 & checking=$$!; \
	status=0; $(BIN)/pytest $(PROCESSES) -m 'not long' --part test $(ARGS) || status=$$?; \
	wait $$checking || { cat "$$types" >&2; echo 'error: the types are wrong; see above' >&2; status=1; }; \
	rm -f "$$types"; exit $$status

test-more: $(TEST) test-tools ## the other tests that CI runs: real servers, clients, databases, containers and browsers
	@$(COMPILE)
	@$(BIN)/pytest $(PROCESSES) -m 'not long' --part more $(ARGS)

test-times: $(TEST) test-tools ## the CPU time of each test of both, with a table by folder and file; build/test-times.json has all; ARGS="tests/live" measures some
	@$(COMPILE)
	@$(BIN)/pytest $(PROCESSES) -m 'not long' -p tests.harness.times --times build/test-times.json $(ARGS)

test-long: $(TEST) $(DOCS) test-tools ## the tests that CI leaves out because they take long for what they show, and tests of properties with many examples
	@$(BIN)/pytest $(PROCESSES) -m long $(ARGS)
	@HYPOTHESIS_PROFILE=thorough $(BIN)/pytest $(PROCESSES) -m 'hypothesis and not long' $(ARGS)

# 3.12 is in no suite of Debian. One after the other: each needs both cores.
test-pythons: ## run the tests that start no processes on the oldest and the newest supported Python, which are fetched from Debian, with warnings as errors; PYTHONS="3.13:trixie" chooses another
	@for each in $(PYTHONS); do \
	    scripts/setup-python.sh "$${each%%:*}" "$${each#*:}" test || exit; \
	    echo "Python $${each%%:*}:"; \
	    .tools/bin/fairlead-python$${each%%:*} -m pytest $(PROCESSES) -W error -m 'not long' --part packages $(ARGS) || exit; \
	done

test-console: $(TEST) test-tools ## the tests of the web console in a real browser, also those marked as long
	@$(BIN)/pytest -n 0 tests/console tests/features/test_console.py tests/live/test_console.py $(ARGS)

screenshots: $(TEST) test-tools ## draw every page of the console with the demo at four widths in both themes into build/screenshots; ARGS="docs docs/console" draws those of the documentation
	@$(BIN)/python -m tests.console.screenshots $(or $(ARGS),all build/screenshots)

test-container: $(TEST) test-tools ## build the container for amd64 and arm64 on a Debian that is made here, run it read-only and without capabilities, and install the wheel; as root
	@scripts/setup-tools.sh qemu
	@$(BIN)/pytest -n 0 tests/live/test_container.py tests/live/test_package.py $(ARGS)

test-faults: $(TEST) test-tools ## inject faults into real servers and stores (kill, stop, disconnect, fill the disk), and check what clients saw
	@TEST_STORES=all $(BIN)/pytest tests/live/test_replicas*.py tests/live/test_workers.py tests/chaos/conformance_on_stores.py
	@$(BIN)/python -m tests.chaos --full $(ARGS)

test-upgrade: $(TEST) test-tools ## start this version on the data of every release, and replace replicas by the next release under load
	@TEST_STORES=all $(BIN)/pytest -n 0 tests/upgrade tests/app/test_upgrade.py tests/storage/test_migration.py $(ARGS)

test-runner: $(TEST) test-tools ## kill a real runner with kill -9 in each phase of up, stop and delete: ROUNDS=30 with small processes, CONTAINER_ROUNDS=12 with dev containers
	@RUNNER_ROUNDS=$(or $(ROUNDS),30) CONTAINER_ROUNDS=$(or $(CONTAINER_ROUNDS),12) $(BIN)/pytest -n 0 tests/live/test_runner.py tests/live/devcontainer_rounds.py $(ARGS)

test-agents: $(TEST) test-tools ## kill agents that dial out and their server with kill -9, and lose the connections between them, under load: ROUNDS=50
	@AGENT_ROUNDS=$(or $(ROUNDS),50) AGENT_HANG_SECONDS=30 $(BIN)/pytest -n 0 --timeout=3600 -s tests/live/test_agent_rounds.py $(ARGS)

test-barriers: $(TEST) test-tools ## switch off each barrier between workspaces and the machine, and see that the test of it fails then: 15 minutes, as root
	@$(BIN)/pytest -n 0 -v tests/runner/barriers $(ARGS)

# An emulated processor is slow, so tests have an hour each. The quickest come first.
CGROUP2_TESTS := $(addprefix tests/runner/engines/test_,cgroups.py limits.py holder_attacks.py devcontainer_session.py)
test-cgroup2: $(TEST) test-tools ## the limits of dev containers, and attacks on them, in a virtual machine with version 2 of cgroups alone: RUNTIME=runc has no crun, INIT=small no systemd, ARGS=FILE runs other tests; as root
	@scripts/setup-tools.sh vm
	@RUNTIME="$(RUNTIME)" INIT="$(INIT)" scripts/run-in-vm.sh .venv/bin/pytest -n 0 -v -p no:cacheprovider --timeout=3600 $(or $(ARGS),$(CGROUP2_TESTS))

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

check: check-style ## style, format, import rules and types
	@$(BIN)/mypy --no-error-summary
	@scripts/check-console.sh types
	@echo 'checks passed: types'

check-style: $(TEST) ## style, format and import rules
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'not formatted: run `make fmt`' >&2; exit 1; }
	@out="$$($(BIN)/lint-imports --no-logo --no-cache 2>&1)" || { echo "$$out" >&2; exit 1; }
	@scripts/check-console.sh style
	@echo 'checks passed: style, format, imports'

dist: $(RUN) ## build the sdist and the wheel into dist/, reproducibly
	@$(BIN)/python scripts/build_dist.py $(ARGS)

sbom: dist ## write a CycloneDX bill of materials next to the wheel
	@$(BIN)/python scripts/write_sbom.py dist/*.whl

release: $(RUN) ## check that this commit can be released, and collect the files of the release in dist/; ARGS=--check only checks
	@$(BIN)/python scripts/prepare_release.py $(ARGS)

audit: $(RUN) ## check the locked dependencies for known vulnerabilities; exit code 1: found some, 3: not audited
	@$(BIN)/python scripts/audit_dependencies.py $(ARGS)

manifests: $(TEST) ## render deploy/chart into deploy/manifests, for installations without Helm
	@$(BIN)/python scripts/render_manifests.py

docs: reference $(DOCS) ## build the documentation site into build/docs/site, and check it; ARGS="--engine mkdocs" uses the other engine
	@.venv-docs/bin/python -m scripts.docs_site $(ARGS)

reference: $(RUN) ## write the reference pages of docs/ from the code
	@$(BIN)/python -m scripts.reference

lock: ## update requirements/*.lock after the dependencies have changed; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

fmt: $(TEST) ## format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --exit-zero
	@$(BIN)/ruff format --quiet
	@scripts/check-console.sh format

bench: $(TEST) ## measure the server under load, next to an upper bound; ARGS=--quick only shows that it works
	@scripts/setup-tools.sh wrk
	@$(BIN)/python -m bench $(ARGS)

bench-workspaces: $(TEST) test-tools ## measure a runner with 20 dev containers; ARGS="--count 5" runs fewer
	@$(BIN)/python -m bench.workspaces $(ARGS)

bench-console: $(TEST) test-tools ## measure the web console in a browser; ARGS=--quick only shows that it works, ARGS="--write docs/console.md" keeps the table
	@$(BIN)/python -m bench.console $(ARGS)

tools: ## unpack kubectl into .tools/bin, for the first session
	@REQUIRED=true scripts/setup-tools.sh kubectl
	@echo 'kubectl is in .tools/bin: export PATH="$(CURDIR)/.tools/bin:$$PATH"'

helm-tools: ## fetch the Helm that apps and virtual clusters are deployed with into .tools/bin, which `make up` looks in; without network, HELM_ARCHIVE=FILE names its archive
	@REQUIRED=true scripts/setup-tools.sh helm
	@echo 'helm is in .tools/bin, where `make up` finds it; for other commands: export PATH="$(CURDIR)/.tools/bin:$$PATH"'

runner-tools: ## install what `fairlead runner start` needs, as root: podman, and the dev container CLI with Node.js (.tools/bin)
	@REQUIRED=true scripts/setup-tools.sh podman devcontainer
	@echo "podman is $$(command -v podman), and the dev container CLI is $(CURDIR)/.tools/bin/devcontainer"
	@echo 'next: fairlead runner create NAME, and as root: fairlead runner doctor NAME'

test-tools: ## install the programs that tests use: kubectl in three versions (.tools/bin), PostgreSQL, etcd, wrk, Chromium, the linter and the type checker of the console, podman, the dev container CLI, an OpenID provider, promtool, shells and the newest Python
	@scripts/setup-tools.sh kubectl kubectl-1.32 kubectl-1.20 postgresql etcd etcdctl faketime wrk chromium axe console podman devcontainer oidc promtool zsh fish workspace python-3.14

clean: ## remove .venv, .tools and all caches, but no data of servers
	@rm -rf .venv .venv-docs .tools $(CACHES)
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): $(SETUP)
	@scripts/setup-venv.sh

$(TEST): $(SETUP)
	@scripts/setup-venv.sh test

# The engines have an environment of their own: their dependencies are none of the server's.
$(DOCS): requirements/docs.lock | $(RUN)
	@echo 'installing the engines of the documentation into .venv-docs' >&2
	@$(BIN)/python -m venv --clear .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/docs.lock
	@touch $@
