"""The examples in docs/access-keys.md: each request gets the decision in the table."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from fairlead.authz.scope import ScopeNaming, gateway_target, inside_gateway, overlaps, within_scope
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from tests.authz.scope.requests import ADA, PREFIX

PAGE = Path(__file__).resolve().parents[3] / "docs" / "access-keys.md"
EXAMPLE = re.compile(
    r"```yaml\nscope:\n(?P<scope>[^`]*)```\n\n\| request \| result \|\n\|---\|---\|\n(?P<rows>(?:\|.*\n)+)"
)
REQUEST = re.compile(
    r"`(?P<verb>\w+) (?P<resource>\w+)(?: (?!in )(?P<name>\S+))?(?: in (?P<namespace>[\w -]+))?`(?P<gateway>.*)"
)
CLUSTER_GATEWAY = re.compile(r" through the gateway of cluster `(\w+)`")
SPACE_GATEWAY = re.compile(r" through the gateway of space `(\w+)` of project `(\w+)`")
ALLOWED, FILTERED, DENIED = "allowed", "filtered", "403"

CATALOG = Catalog(KINDS)
NAMING = ScopeNaming.from_catalog(CATALOG, MANAGEMENT_GROUP, PREFIX)


@dataclass(frozen=True, slots=True)
class Example:
    scope: Scope
    request: str
    result: str


def read_examples() -> Iterator[Example]:
    for match in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8")):
        scope = Scope.parse(yaml.safe_load(f"scope:\n{match['scope']}")["scope"])
        assert scope is not None
        for row in match["rows"].splitlines():
            request, result = (cell.strip() for cell in row.strip("|").split("|"))
            yield Example(scope, request, result.partition(":")[0])


EXAMPLES = list(read_examples())


def parse_gateway(text: str) -> RequestInfo | None:
    if not text:
        return None
    if match := CLUSTER_GATEWAY.fullmatch(text):
        return gateway_target(CLUSTER, match[1])
    match = SPACE_GATEWAY.fullmatch(text)
    assert match, text
    return gateway_target(SPACE, match[1], PREFIX + match[2])


def parse_target(match: re.Match[str]) -> RequestInfo:
    plural, name, namespace = match["resource"], match["name"] or "", match["namespace"] or ""
    if match["gateway"]:
        return RequestInfo(match["verb"], "/x", "", "", "v1", plural, "", namespace, name)
    kind = next(kind for kind in CATALOG.kinds if kind.plural == plural)
    target_namespace = name if plural == "namespaces" else "" if namespace == "all namespaces" else namespace
    return RequestInfo(match["verb"], "/x", MANAGEMENT, kind.group, "v1", plural, "", target_namespace, name)


def decide(example: Example) -> str:
    user = replace(ADA, scope=example.scope)
    if path := re.fullmatch(r"`(\w+) (/\S+)`", example.request):
        target = RequestInfo(path[1], path[2], MANAGEMENT)
        return ALLOWED if within_scope(NAMING)(user, target) is None else DENIED
    match = REQUEST.fullmatch(example.request)
    assert match, example.request
    target, gateway = parse_target(match), parse_gateway(match["gateway"])
    if gateway is not None:
        return ALLOWED if inside_gateway(NAMING)(user, gateway, target) is None else DENIED
    if within_scope(NAMING)(user, target) is None:
        return ALLOWED
    return FILTERED if overlaps(NAMING)(user, target) else DENIED


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.request)
def test_an_example_gets_the_decision_on_the_page(example: Example) -> None:
    assert decide(example) == example.result


def test_the_page_has_examples_of_every_result() -> None:
    assert len(EXAMPLES) > 20
    assert {example.result for example in EXAMPLES} == {ALLOWED, FILTERED, DENIED}
