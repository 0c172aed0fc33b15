"""Holds docs/specification.md against the suite: each row of the specification is on it, with tests that exist.

The rows are written down here by name, so that none can get lost together with its line on the page. Tests are found in
the syntax trees, without importing anything.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.kinds.field_inventory import describe_effect

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")

STANDARD = ("list", "get", "create", "update", "patch", "delete")
WITH_ALL = ("devpodworkspaceinstances", "apps", "clusters", "ownedaccesskeys")

FIELDS = {
    "Kinds": """
        DevPodWorkspaceInstance App Cluster RunnerAccessKey DirectClusterEndpointToken OwnedAccessKey
        ProjectMigrateVirtualClusterInstance
    """,
    "Envelope": "kind apiVersion metadata spec status",
    "metadata": """
        name generateName namespace selfLink uid resourceVersion generation creationTimestamp
        deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers
        managedFields
    """,
    "ownerReferences": "apiVersion kind name uid controller blockOwnerDeletion",
    "managedFields": "manager operation apiVersion time fieldsType fieldsV1 subresource",
    "scope": "allowServiceCli projects spaces virtualClusters rules",
    "scope.rules": "verbs resources resourceNames namespaces nonResourceURLs requestTargets cluster virtualClusters",
    "DevPodWorkspaceInstance": """
        spec.displayName spec.owner.user spec.parameters spec.runnerRef spec.templateRef.name status
    """,
    "App": """
        spec.access spec.config.chart.name spec.config.chart.repoURL spec.description spec.displayName
        spec.icon spec.recommendedApp status
    """,
    "Cluster": "spec.config.secretName spec.config.secretNamespace spec.description spec.displayName status",
    "RunnerAccessKey": "metadata accessKey",
    "DirectClusterEndpointToken": "spec spec.ttl spec.scope status.token",
    "OwnedAccessKey": """
        spec.displayName spec.description spec.user spec.team spec.subject spec.groups spec.key
        spec.disabled spec.ttl spec.ttlAfterLastActivity spec.scope spec.type spec.identity.userId
        spec.identity.username spec.identity.preferredUsername spec.identity.email
        spec.identity.emailVerified spec.identity.groups spec.identity.connector spec.identity.connectorData
        spec.identity.identityRefresh spec.oidcProvider.clientId spec.oidcProvider.nonce
        spec.oidcProvider.redirectUri spec.oidcProvider.scopes spec.parent spec.oidcLogin.idToken
        spec.oidcLogin.accessToken spec.oidcLogin.refreshToken spec.oidcLogin.lastRefresh
        status.lastActivity
    """,
    "ProjectMigrateVirtualClusterInstance": """
        sourceVirtualClusterInstance sourceVirtualClusterInstance.name
        sourceVirtualClusterInstance.namespace
    """,
    "Authentication": "1 2 3 4 5 6 7 8 9",
    "Errors": "409 422",
    "Versioning": "1 2 3 4 5",
}
OPERATIONS = [
    *(f"{operation} {plural}" for plural in WITH_ALL for operation in STANDARD),
    "namespace of a create",
    "get runners/accesskey",
    "create projects/migratevirtualclusterinstance",
    "create directclusterendpointtokens",
]
ROWS = {**{section: names.split() for section, names in FIELDS.items()}, "Operations": OPERATIONS}

Proofs = dict[tuple[str, str], list[str]]

FIELD_SECTIONS = {
    "scope": "OwnedAccessKey.spec.scope.",
    "scope.rules": "OwnedAccessKey.spec.scope.rules[].",
    **{kind: f"{kind}." for kind in ("DevPodWorkspaceInstance", "App", "Cluster", "DirectClusterEndpointToken")},
    "OwnedAccessKey": "OwnedAccessKey.",
}
"""The sections about fields that clients set, and the path in front of their rows."""


def proofs(page: str) -> Proofs:
    """The tests of each row, by the heading above it and its name."""
    found: Proofs = {}
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif row := re.fullmatch(r"\| `([^`]+)` \| .+ \| (.*) \|", line):
            assert (section, row[1]) not in found, f"{section}: {row[1]} is there twice"
            found[section, row[1]] = re.findall(r"`([^`]+)`", row[2])
        else:
            assert not line.startswith("| `"), f"a row that cannot be read: {line}"
    return found


@cache
def declared_in(path: str) -> frozenset[str]:
    """The tests of one file, at its top level: those are the ones that pytest runs here."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, functions) and node.name.startswith("test_"))


def missing_rows(page: str) -> list[tuple[str, str]]:
    named = proofs(page)
    return [(section, row) for section, rows in ROWS.items() for row in rows if (section, row) not in named]


def unproved_rows(page: str) -> list[tuple[str, str]]:
    return [row for row, tests in proofs(page).items() if not tests]


def unknown_tests(page: str) -> list[str]:
    named = {test for tests in proofs(page).values() for test in tests}
    return sorted(test for test in named if test.partition("::")[2] not in declared_in(test.partition("::")[0]))


def wrong_effects(page: str) -> list[str]:
    """The rows of fields whose effect is another than the page says."""
    found, section = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif section in FIELD_SECTIONS and (row := re.match(r"\| `([^`]+)` \| [^|]+ \| ([^|]+) \| ", line)):
            path = f"{FIELD_SECTIONS[section]}{row[1]}"
            effect = "written by the server" if row[1].startswith("status") else describe_effect(path)
            if row[2] != effect:
                found.append(f"{path}: {effect}")
    return found


def test_the_effect_of_each_field_is_the_one_on_the_page() -> None:
    assert wrong_effects(PAGE) == []


def test_a_wrong_effect_is_noticed() -> None:
    changed = PAGE.replace(
        "| `spec.oidcProvider.nonce` | string | none |", "| `spec.oidcProvider.nonce` | string | yes |"
    )
    assert wrong_effects(changed) == ["OwnedAccessKey.spec.oidcProvider.nonce: none"]


def test_every_row_of_the_specification_is_on_the_page() -> None:
    assert missing_rows(PAGE) == []


def test_the_page_has_no_row_that_the_specification_has_not() -> None:
    assert set(proofs(PAGE)) == {(section, row) for section, rows in ROWS.items() for row in rows}


def test_every_row_has_a_test() -> None:
    assert unproved_rows(PAGE) == []


def test_every_test_on_the_page_exists() -> None:
    assert unknown_tests(PAGE) == []


def test_every_test_that_was_written_for_the_specification_is_on_the_page() -> None:
    named = {test for tests in proofs(PAGE).values() for test in tests}
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "specification").glob("test_*.py"))
    written = {f"{file}::{test}" for file in files for test in declared_in(file)}
    assert written - named == set()


@pytest.mark.parametrize("row", [("metadata", "uid"), ("App", "spec.icon"), ("Operations", "patch clusters")])
def test_a_row_that_gets_lost_is_noticed(row: tuple[str, str]) -> None:
    section, name = row
    before, heading, after = PAGE.partition(f"## {section}\n")
    shortened = before + heading + re.sub(rf"\| `{re.escape(name)}` \|.*\n", "", after, count=1)
    assert missing_rows(shortened) == [row]


def test_a_row_without_a_test_is_noticed() -> None:
    emptied = re.sub(r"(\| `selfLink` \| [^|]+ \|) .* \|", r"\1  |", PAGE)
    assert unproved_rows(emptied) == [("metadata", "selfLink")]


def test_a_test_that_was_renamed_is_noticed() -> None:
    name = "tests/specification/test_metadata.py::test_labels_can_be_selected"
    assert unknown_tests(PAGE.replace(name, f"{name}_nothing")) == [f"{name}_nothing"]
    assert unknown_tests(PAGE.replace(name, "tests/nowhere.py::test_x")) == ["tests/nowhere.py::test_x"]
