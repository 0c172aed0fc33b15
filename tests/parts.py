"""Which tests `make test` runs, and which `make test-more`: each test belongs to exactly one of them.

`make test` is for every day: the tests that start no processes, and one real end-to-end test of each area.
`make test-more` runs the rest: real servers, clients, databases, containers and browsers. `.ci/run` runs both. Tests
marked as `long` are in neither; `make test-long` runs them.

`PARTS` has a row for each folder of tests, and one for each file that is an exception to the row of its folder: the
longest name decides. `SMOKE` names the end-to-end tests. `tests/conftest.py` asks this module which tests to collect.
"""

from enum import Enum
from pathlib import Path

TESTS = Path(__file__).resolve().parent


class Part(Enum):
    PACKAGES = "packages"
    """`make test` runs them, and `make test-pythons` on other versions of Python."""
    TEST = "test"
    """`make test` runs them."""
    MORE = "more"
    """`make test-more` runs them."""


SELECTIONS = {
    "test": {Part.PACKAGES, Part.TEST},
    "packages": {Part.PACKAGES},
    "more": {Part.MORE},
}
"""What the values of the option `--part` select."""

MINUTES = {"test": 8, "packages": 5, "more": 17}
"""About how long that takes on two cores that do nothing else."""

SMOKE = {
    "kubectl": "clients/test_kubectl_apply.py",
    "a server on SQLite": "specification",
    "a recorded Kubernetes": "conformance/test_conformance.py",
    "PostgreSQL": "live/test_replicas.py::test_a_write_is_visible_at_other_replicas_at_once",
    "etcd": "storage/etcd/test_store.py",
    "gateways": "live/test_gateway_kubectl.py::test_apply_and_delete_reach_the_cluster",
    "runners and dev containers": "live/test_runner_devcontainer.py",
    "the console in a browser": "console/test_page.py",
    "single sign-on": "sso/test_sign_on.py",
    "the command line": "cli/test_commands_end_to_end.py",
}
"""The end-to-end tests of `make test`, by area."""

PARTS = {
    # Each package by itself
    "admission": Part.PACKAGES,
    "agent": Part.PACKAGES,
    "app": Part.PACKAGES,
    "authn": Part.PACKAGES,
    "authz": Part.PACKAGES,
    "cli": Part.TEST,
    "cli/access/test_console_login.py": Part.MORE,
    "cli/server/test_completion.py": Part.MORE,
    "cli/server/test_completion_quoting.py": Part.MORE,
    "cli/server/test_install.py": Part.MORE,
    "cli/server/test_serve.py": Part.MORE,
    "cli/server/test_up.py": Part.MORE,
    "cli/test_clusters_end_to_end.py": Part.MORE,
    "cli/test_demo_end_to_end.py": Part.MORE,
    "cli/test_first_hour.py": Part.MORE,
    "cli/test_mistakes.py": Part.MORE,
    "cli/test_project_usage.py": Part.MORE,
    "cli/test_readme.py": Part.MORE,
    "cli/test_workspaces_end_to_end.py": Part.MORE,
    "client": Part.PACKAGES,
    "controllers": Part.PACKAGES,
    "core": Part.PACKAGES,
    "domain": Part.PACKAGES,
    "features": Part.PACKAGES,
    "gateway": Part.PACKAGES,
    "kinds": Part.PACKAGES,
    "links": Part.PACKAGES,
    "registry": Part.PACKAGES,
    "runner": Part.TEST,
    "runner/engines": Part.MORE,
    "runner/engines/inside": Part.TEST,
    "runner/engines/test_cleanup.py": Part.TEST,
    "runner/engines/test_compose.py": Part.TEST,
    "runner/engines/test_detached.py": Part.TEST,
    "runner/engines/test_diagnosis.py": Part.TEST,
    "runner/engines/test_network.py": Part.TEST,
    "runner/engines/test_observation.py": Part.TEST,
    "runner/engines/test_policy.py": Part.TEST,
    "runner/engines/test_preparation.py": Part.TEST,
    "runner/engines/test_private_names.py": Part.TEST,
    "runner/engines/test_programs.py": Part.TEST,
    "runner/engines/test_scans.py": Part.TEST,
    "runner/engines/test_session_variables.py": Part.TEST,
    "runner/engines/test_shared_images.py": Part.TEST,
    "server": Part.PACKAGES,
    "server/audit/test_several_writers.py": Part.MORE,
    "settings": Part.PACKAGES,
    "signin": Part.PACKAGES,
    "storage": Part.PACKAGES,
    "storage/etcd/test_outages.py": Part.MORE,
    "storage/postgres/test_outages.py": Part.MORE,
    "storage/socket/test_processes.py": Part.MORE,
    "subresources": Part.PACKAGES,
    "upstream": Part.PACKAGES,
    # The whole server: `PURPOSES` says what each folder is for
    "chaos": Part.MORE,
    "client_suites": Part.MORE,
    "clients": Part.MORE,
    "conformance": Part.MORE,
    "console": Part.MORE,
    "cost": Part.MORE,
    "generated": Part.MORE,
    "live": Part.MORE,
    "reference": Part.MORE,
    "security": Part.MORE,
    "specification": Part.MORE,
    "sso": Part.MORE,
    "upgrade": Part.MORE,
    # The project itself
    "architecture": Part.TEST,
    "bench": Part.MORE,
    "deploy": Part.MORE,
    "docs": Part.MORE,
    "harness": Part.MORE,
    "scripts": Part.MORE,
    "test_security_model.py": Part.TEST,
    "test_specification.py": Part.TEST,
}

PURPOSES = {
    "chaos": "real servers and stores that are killed, stopped, cut off and filled: clients see a consistent history",
    "client_suites": "the same kubectl commands, and the suites of Python clients, on Fairlead and on a Kubernetes",
    "clients": "unmodified clients (kubectl, curl, Python, kopf, Terraform) do what their users do with them",
    "conformance": "the answers are those that a kube-apiserver gave when they were recorded",
    "console": "the web console in a real browser",
    "cost": "no request takes more of the event loop or of the memory than its bound, whatever its body",
    "generated": "no identity gets, by a million generated requests, what its permissions do not give it",
    "live": "what only processes show: start, stop, crash, workers, replicas, streams, gateways, runners",
    "reference": "what only a real Kubernetes shows; `make test-reference` runs these",
    "security": "attacks on a server, a runner or a client: each fails, and others do not notice",
    "specification": "each operation and field of the API, as docs/specification.md lists them",
    "sso": "single sign-on with real OpenID providers, and attacks by providers and users",
    "upgrade": "data and clients of earlier releases",
}
"""What each folder of tests with the whole server is for. `live` is for what fits no other."""


def find_part(name: str) -> Part:
    """The part of a test, by its name below tests/ such as `live/test_watch.py::test_x[1]`."""
    rows = {**PARTS, **dict.fromkeys(SMOKE.values(), Part.TEST)}
    matching = [row for row in rows if _is_below(name, row)]
    if not matching:
        raise LookupError(f"tests/{name} is in no row of PARTS in tests/parts.py; add one for its folder")
    return rows[max(matching, key=len)]


def has_tests_of(file: str, selection: str) -> bool:
    """Whether a file has tests of a selection, as far as the names of its rows tell: it is not imported for this."""
    parts = {find_part(file)} | {Part.TEST for each in SMOKE.values() if _is_below(each, file)}
    return bool(parts & SELECTIONS[selection])


def is_selected(name: str, selection: str) -> bool:
    return find_part(name) in SELECTIONS[selection]


def _is_below(name: str, row: str) -> bool:
    """Whether a test is, or is in, a folder, file or test: each part of a name ends with one of these characters."""
    return name == row or (name.startswith(row) and name[len(row)] in "/:[")
