"""deploy/monitoring/alerts.yaml, evaluated by promtool: each alert fires when it should, and is quiet otherwise."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "monitoring" / "alerts.yaml"
JOB, INSTANCE = {"job": "fairlead"}, {"job": "fairlead", "instance": "a:8443"}


@dataclass(frozen=True)
class Case:
    """Series of one-minute samples, in promtool's notation, under which the alert fires at minute `at`, and others
    under which it does not. `labels` and `description` are those of the alert."""

    alert: str
    at: int
    firing: dict[str, str]
    quiet: dict[str, str]
    description: str
    labels: dict[str, str] = field(default_factory=lambda: INSTANCE)


def requests(code: str, rate: str, **labels: str) -> dict[str, str]:
    """A counter of requests that grows by `rate` each minute."""
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    return {f'apiserver_request_total{{job="fairlead",instance="a:8443",code="{code}"{text}}}': f"0+{rate}x60"}


def gauge(name: str, value: str, labels: str = "") -> dict[str, str]:
    return {f'{name}{{job="fairlead",instance="a:8443"{labels}}}': f"{value}x60"}


def buckets(name: str, counts: dict[str, int], labels: str = "") -> dict[str, str]:
    """A histogram whose buckets grow by these counts each minute."""
    return {
        f'{name}_bucket{{job="fairlead",instance="a:8443",le="{bound}"{labels}}}': f"0+{count}x60"
        for bound, count in counts.items()
    }


def counter(name: str, labels: str, rate: int = 3) -> dict[str, str]:
    return {f'{name}{{job="fairlead",instance="a:8443"{labels}}}': f"0+{rate}x60"}


def reject(**labels: str) -> dict[str, str]:
    text = "".join(f',{name}="{value}"' for name, value in labels.items())
    return counter(
        "apiserver_flowcontrol_rejected_requests_total", f',priority_level="bulk",flow_schema="users"{text}', 60
    )


def view_revisions(behind: str) -> dict[str, str]:
    """Two replicas, one of which follows the store."""
    other = 'fairlead_view_revision{job="fairlead",instance="b:8443",worker="1"}'
    return {other: "0+30x60", 'fairlead_view_revision{job="fairlead",instance="a:8443",worker="1"}': behind}


def blocked(count: int) -> dict[str, str]:
    name = "fairlead_event_loop_blocked_seconds"
    return buckets(name, {"0.1": 3000, "+Inf": count}) | counter(f"{name}_count", "", count)


def disk(free: str) -> dict[str, str]:
    return gauge("fairlead_data_free_bytes", free) | gauge("fairlead_data_size_bytes", "100e9")


READY = {"subresource": "/readyz"}
LIST_SPEED = ',verb="LIST",scope="cluster"'
GET_SPEED = ',verb="GET",scope="resource"'
DURATION = "apiserver_request_duration_seconds"
COMMITS = "fairlead_store_commit_seconds"
CERTIFICATE = "fairlead_certificate_expiration_timestamp_seconds"
SIGN_ONS, REFRESHES = "fairlead_sign_ons_total", "fairlead_sign_on_refreshes_total"
ENDED = "fairlead_sign_on_sessions_ended_total"
CONNECTOR = {**JOB, "connector": "okta"}

CASES = [
    Case(
        *("FairleadAbsent", 10, {}, gauge("up", "1")),
        "There has been no target of the job fairlead for five minutes, so no other alert can fire.",
        JOB,
    ),
    Case(*("FairleadDown", 3, gauge("up", "0"), gauge("up", "1")), "a:8443 has not answered a scrape for two minutes."),
    Case(
        *("FairleadNotReady", 10, requests("503", "6", **READY), requests("200", "6", **READY)),
        "Readiness checks of a:8443 fail: its store or its audit log cannot be written.",
    ),
    Case(
        "FairleadRestarts",
        20,
        {'process_start_time_seconds{job="fairlead",instance="a:8443",worker="1"}': "100x15 200 300 400 500"},
        {'process_start_time_seconds{job="fairlead",instance="a:8443",worker="1"}': "100x15 200x15"},
        "A process of a:8443 has started 4 times within 15 minutes.",
        {**INSTANCE, "worker": "1"},
    ),
    Case(
        "FairleadNoLeader",
        10,
        gauge("leader_election_master_status", "0")
        | {'leader_election_master_status{job="fairlead",instance="b"}': "0x60"},
        gauge("leader_election_master_status", "0")
        | {'leader_election_master_status{job="fairlead",instance="b"}': "1x60"},
        "For two minutes, no replica has held the lease. Objects are stored, but nothing acts on them.",
        JOB,
    ),
    Case(
        *("FairleadReplicaBehind", 20, view_revisions("70x60"), view_revisions("0+29x60")),
        "a:8443 has seen no change for ten minutes, and other replicas have.",
        {**INSTANCE, "worker": "1"},
    ),
    Case(
        *("FairleadCertificateExpires", 61, gauge(CERTIFICATE, str(3660 + 86400)), gauge(CERTIFICATE, str(40 * 86400))),
        "The certificate of a:8443 expires in 1d 0h 0m 0s.",
    ),
    Case(
        *(
            "FairleadUnavailable",
            10,
            requests("503", "10") | requests("200", "90"),
            requests("503", "1") | requests("200", "99"),
        ),
        "a:8443 answers 10% of requests with 503: its store, its disk or its audit log.",
    ),
    Case(
        *(
            "FairleadErrors",
            20,
            requests("500", "4") | requests("200", "96"),
            requests("503", "50") | requests("200", "96"),
        ),
        "4% of the responses of a:8443 are errors of the server.",
    ),
    Case(
        "FairleadSlow",
        30,
        buckets(DURATION, {"1": 10, "2": 100, "+Inf": 100}, GET_SPEED),
        buckets(DURATION, {"1": 100, "2": 100, "+Inf": 100}, GET_SPEED)
        | buckets(DURATION, {"1": 0, "2": 100, "+Inf": 100}, LIST_SPEED),
        "The 99th percentile of GET is 1.989s.",
        {**JOB, "verb": "GET"},
    ),
    Case(
        *("FairleadRequestsRejected", 20, reject(reason="queue-full"), reject(reason="cancelled")),
        "Requests of users in the level bulk are rejected: 1 each second.",
        {**JOB, "flow_schema": "users", "priority_level": "bulk"},
    ),
    Case(
        *("FairleadWatchesRejected", 20, requests("429", "60", verb="WATCH"), requests("429", "60", verb="GET")),
        "Requests with the verb WATCH exceed the limits of open streams.",
        {**JOB, "verb": "WATCH"},
    ),
    Case(
        "FairleadGatewayErrors",
        20,
        counter("fairlead_gateway_requests_total", ',gateway="cluster",code="5xx"')
        | counter("fairlead_gateway_requests_total", ',gateway="cluster",code="2xx"'),
        counter("fairlead_gateway_requests_total", ',gateway="cluster",code="4xx"'),
        "50% of requests through the cluster gateway fail.",
        {**JOB, "gateway": "cluster"},
    ),
    Case(
        "FairleadStoreSlow",
        20,
        buckets(COMMITS, {"0.5": 0, "1": 100, "+Inf": 100}),
        buckets(COMMITS, {"0.5": 100, "1": 100, "+Inf": 100}),
        "The 99th percentile of commits of a:8443 is 995ms.",
    ),
    Case(
        *("FairleadEventLoopBlocked", 20, blocked(3001), blocked(3000)),
        "All requests of a:8443 waited for more than 100 ms, about 15 times within 15 minutes.",
    ),
    Case(
        "FairleadOpenFiles",
        15,
        gauge("process_open_fds", "900", ',worker="1"') | gauge("process_max_fds", "1000", ',worker="1"'),
        gauge("process_open_fds", "100", ',worker="1"') | gauge("process_max_fds", "1000", ',worker="1"'),
        "a:8443 uses 90% of its file descriptors.",
        {**INSTANCE, "worker": "1"},
    ),
    Case(
        *("FairleadDiskAlmostFull", 15, disk("5e9"), disk("50e9")),
        "5% of the file system of the data folder of a:8443 is free.",
    ),
    Case(
        *("FairleadClustersFailed", 11, gauge("fairlead_clusters", "2", ',phase="Failed"')),
        gauge("fairlead_clusters", "2", ',phase="Initialized"') | gauge("fairlead_clusters", "0", ',phase="Failed"'),
        *("2 clusters need intervention.", JOB),
    ),
    Case(
        *("FairleadClustersOffline", 16, gauge("fairlead_clusters", "1", ',phase="Pending"')),
        gauge("fairlead_clusters", "0", ',phase="Pending"'),
        *("1 clusters have been offline, or not set up, for 15 minutes.", JOB),
    ),
    Case(
        *("FairleadRunnersSilent", 6, gauge("fairlead_runners", "1", ',status="Silent"')),
        gauge("fairlead_runners", "3", ',status="NotReady"') | gauge("fairlead_runners", "0", ',status="Silent"'),
        *("1 runners have not responded for six minutes.", JOB),
    ),
    Case(
        *("FairleadSignOnProviderUnavailable", 20, counter(REFRESHES, ',connector="okta",result="provider_timeout"')),
        counter(REFRESHES, ',connector="okta",result="refreshed"')
        | counter(SIGN_ONS, ',connector="okta",result="no_rule_matched"'),
        *("The provider of the connector okta does not respond as it should.", CONNECTOR),
    ),
    Case(
        *("FairleadSignOnMisconfigured", 20, counter(SIGN_ONS, ',connector="okta",result="client_secret_missing"')),
        counter(SIGN_ONS, ',connector="okta",result="success"'),
        *("Sign-ons with the connector okta fail until its settings are corrected.", CONNECTOR),
    ),
    Case(
        *("FairleadSessionsEndedStale", 20, counter(ENDED, ',connector="okta",reason="stale_too_long"')),
        counter(ENDED, ',connector="okta",reason="grant_revoked"'),
        *("Sessions of the connector okta could not be checked for too long, and were ended.", CONNECTOR),
    ),
    Case(
        "FairleadAuditRetentionNotMet",
        *(10, gauge("fairlead_audit_retention_met", "0"), gauge("fairlead_audit_retention_met", "1")),
        "The audit log of a:8443 had no space for what it must retain.",
    ),
    Case(
        *("FairleadAuditReportsLost", 30, counter("fairlead_audit_reports_lost_total", "", 2)),
        gauge("fairlead_audit_reports_lost_total", "40"),
        *("About 60 events of direct endpoints were lost within an hour.", JOB),
    ),
]


@pytest.fixture
def promtool(component: Callable[[str], Path]) -> str:
    return str(component("promtool"))


@cache
def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_alert_has_a_case() -> None:
    assert sorted(each.alert for each in CASES) == sorted(rules())


def build_tests(case: Case) -> list[dict[str, Any]]:
    """A test of the alert that fires, and one of the quiet alert."""
    rule = rules()[case.alert]
    annotations = {**rule["annotations"], "description": case.description}
    fired = {"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": annotations}
    return [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": alerts}],
        }
        for series, alerts in ((case.firing, [fired]), (case.quiet, []))
    ]


def metric_names(test: dict[str, Any]) -> set[str]:
    return {each["series"].partition("{")[0] for each in test["input_series"]} or {"up"}


def merge_tests(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fewer tests, because each takes promtool a quarter of a second: those without a common metric become one."""
    merged: list[dict[str, Any]] = []
    for test in tests:
        other = next((each for each in merged if not metric_names(each) & metric_names(test)), None)
        if other is None:
            merged.append({**test, "input_series": [*test["input_series"]]})
        else:
            other["input_series"].extend(test["input_series"])
            other["alert_rule_test"].extend(test["alert_rule_test"])
    return merged


def run_promtool(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> "subprocess.CompletedProcess[str]":
    file = folder / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    return subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)


def test_each_alert_fires_when_it_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    tests = merge_tests([test for case in CASES for test in build_tests(case)])
    assert sum(len(each["alert_rule_test"]) for each in tests) == 2 * len(CASES)
    result = run_promtool(promtool, tmp_path, tests)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_wrong_expectation_fails(promtool: str, tmp_path: Path) -> None:
    """promtool exits with 1 for it, so the test above can fail."""
    (test, _) = build_tests(next(each for each in CASES if each.alert == "FairleadDown"))
    test["alert_rule_test"][0]["exp_alerts"] = []
    assert run_promtool(promtool, tmp_path, [test]).returncode == 1


@pytest.mark.parametrize("alert", sorted(rules()))
def test_each_alert_has_a_severity_texts_and_a_section_with_what_to_do(alert: str) -> None:
    rule = rules()[alert]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    assert rule["annotations"]["runbook"] == f"docs/monitoring.md#{alert.lower()}"
    assert f"\n### {alert}\n" in (ROOT / "docs" / "monitoring.md").read_text()
