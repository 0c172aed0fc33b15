"""The queries of the alerts and of the dashboard name metrics, labels and values that a server has.

promql-parser, which is not what Prometheus uses, parses them. The metrics are those of a running server, and the labels
those of docs/metrics.md: a new server has no series yet for some of them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.features.metrics import LABELLED_PATHS
from fairlead.server.http.event_loop_watchdog import Watchdog
from fairlead.signin.oidc.errors import Reason
from fairlead.signin.sso.reasons import EndReason
from tests.harness.server_process import running_server

ROOT = Path(__file__).resolve().parents[2]
MONITORING, PAGE = ROOT / "deploy" / "monitoring", ROOT / "docs" / "metrics.md"
FLOW_CONTROL = "apiserver_flowcontrol_"
OF_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds."""
OF_A_PROCESS = ("process_", "fairlead_view_revision")
"""Metrics with the label `worker` if a server has several."""
VARIABLES = {"$__rate_interval": "5m", "$job": "fairlead", "$instance": "a:8443"}


@dataclass(frozen=True)
class Query:
    place: str
    expression: str
    legend: str = ""


def alert_queries() -> Iterator[Query]:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield Query(rule["alert"], rule["expr"], rule["annotations"]["description"])


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return content


def dashboard_queries() -> Iterator[Query]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield Query(f"{panel['title']} {target['refId']}", expression, target["legendFormat"])


QUERIES = [*alert_queries(), *dashboard_queries()]


@cache
def documented_labels() -> dict[str, set[str]]:
    """The labels of each series in the tables of the page, including those of histograms."""
    groups = {
        "*request*": {"verb", "group", "version", "resource", "subresource", "scope", "component"},
        "*flow*": {"priority_level", "flow_schema"},
    }
    found: dict[str, set[str]] = {"up": set()}
    section = ""
    for line in PAGE.read_text().splitlines():
        section = line if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 4 or cells[1] not in ("counter", "gauge", "histogram"):
            continue
        prefix = FLOW_CONTROL if section == "## Flow control" else ""
        labels = set(re.findall(r"`(\w+)`", cells[2])).union(
            *(groups[each] for each in re.findall(r"\*\w+\*", cells[2]))
        )
        for name in re.findall(r"`(\w+)`", cells[0]):
            found |= expand(prefix + name, cells[1], labels)
    return found


def expand(name: str, type: str, labels: set[str]) -> dict[str, set[str]]:
    if name.startswith(OF_A_PROCESS):
        labels = labels | {"worker"}
    if type != "histogram":
        return {name: labels}
    return {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels, f"{name}_sum": labels}


def walk(expression: Any) -> Iterator[Any]:
    """The expression and all expressions in it."""
    yield expression
    for attribute in ("lhs", "rhs", "expr", "args", "vector_selector", "param"):
        found = getattr(expression, attribute, None)
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, promql_parser.Expr):
                yield from walk(each)


def selectors(expression: Any) -> list[Any]:
    return [each for each in walk(expression) if isinstance(each, promql_parser.VectorSelector)]


def labels_of(expression: Any) -> set[str]:
    return OF_THE_SCRAPE.union(*(documented_labels()[each.name] for each in selectors(expression)))


def find_problems(query: Query) -> Iterator[str]:
    expression = promql_parser.parse(query.expression)
    for selector in selectors(expression):
        if selector.name not in documented_labels():
            yield f"{selector.name} is not in docs/metrics.md"
            return
        known = documented_labels()[selector.name] | OF_THE_SCRAPE
        for matcher in selector.matchers.matchers:
            if matcher.name not in known:
                yield f"{selector.name} has no label {matcher.name}"
            yield from (f"{matcher.name} is never {each}" for each in unknown_values(matcher.name, matcher.value))
        if "job" not in {each.name for each in selector.matchers.matchers}:
            yield f"{selector.name} may be of another server: it has no job"
    for each in walk(expression):
        if isinstance(each, promql_parser.AggregateExpr) and each.modifier is not None:
            yield from (f"no label {label} to aggregate by" for label in set(each.modifier.labels) - labels_of(each))
    used = set(re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", query.legend))
    yield from (f"the text names {label}" for label in used - result_labels(expression))


def result_labels(expression: Any) -> set[str]:
    """The labels that the result of the query has at most. Those of a binary operation are those of its left side."""
    if isinstance(expression, promql_parser.AggregateExpr):
        if expression.modifier is not None:
            return set(expression.modifier.labels)
        return result_labels(expression.expr) if str(expression.op) == "topk" else set()
    if isinstance(expression, promql_parser.VectorSelector):
        return labels_of(expression)
    parts = [getattr(expression, name, None) for name in ("lhs", "expr", "vector_selector")]
    inner = [*parts, *getattr(expression, "args", ())]
    return set().union(*(result_labels(each) for each in inner if isinstance(each, promql_parser.Expr)))


@cache
def known_values() -> set[str]:
    words = set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE.read_text()))
    return words | {*LABELLED_PATHS} | {each.value for each in (*Reason, *SignOnReason, *EndReason)}


def unknown_values(label: str, pattern: str) -> Iterable[str]:
    if label in OF_THE_SCRAPE or label in ("le", "code") or not pattern:
        return ()
    return [each for each in pattern.split("|") if each not in known_values()]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_names_what_is_documented(query: Query) -> None:
    assert list(find_problems(query)) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('fairlead_cluster{job="fairlead"}', "fairlead_cluster is not in docs/metrics.md"),
        ('fairlead_clusters{job="fairlead",state="Failed"}', "fairlead_clusters has no label state"),
        ('fairlead_clusters{job="fairlead",phase="Broken"}', "phase is never Broken"),
        ('sum by (cluster) (fairlead_clusters{job="fairlead"})', "no label cluster to aggregate by"),
        ("fairlead_clusters", "fairlead_clusters may be of another server: it has no job"),
    ],
)
def test_a_mistake_is_found(expression: str, problem: str) -> None:
    assert problem in list(find_problems(Query("", expression)))


def test_a_label_that_the_result_does_not_have_is_found_in_the_text() -> None:
    query = Query("", 'sum by (code) (rate(apiserver_request_total{job="fairlead"}[5m]))', "{{code}} {{verb}}")
    assert list(find_problems(query)) == ["the text names verb"]


def test_a_running_server_has_the_metrics_with_the_documented_labels(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/kubernetes/cluster/none/api").status_code == 404
        page = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    documented = documented_labels()
    for query in QUERIES:
        for selector in selectors(promql_parser.parse(query.expression)):
            name = re.sub(r"_(bucket|count|sum|total)$", "", selector.name)
            assert selector.name == "up" or name in families, f"{query.place}: the server has no {selector.name}"
    for family in families.values():
        for sample in family.samples:
            assert sample.labels.keys() <= documented[sample.name], sample.name


def test_the_buckets_that_queries_name_exist() -> None:
    bounds = {f"{bound:g}" for bound in Watchdog().blocked.bounds}
    named = {
        matcher.value
        for query in QUERIES
        for selector in selectors(promql_parser.parse(query.expression))
        for matcher in selector.matchers.matchers
        if matcher.name == "le"
    }
    assert named <= bounds


def test_panels_do_not_overlap_and_have_a_description() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        position = panel["gridPos"]
        own = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not own & cells and position["x"] + position["w"] <= 24, panel["title"]
        cells |= own
        assert panel["type"] == "row" or panel["description"], panel["title"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
