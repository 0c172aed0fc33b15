"""fairlead cluster export: cluster Secrets of Argo CD with a key each, and ClusterProfiles without one."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from fairlead.core.clock import timestamp
from tests.cli.resources.cluster_responses import CLUSTERS, build_cluster
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request, build_object, failure_status, list_response

KEYS = f"{M}/ownedaccesskeys"
DAY = 86400


def named(name: str, uid: str = "") -> dict[str, Any]:
    cluster = build_cluster()
    return {**cluster, "metadata": {**cluster["metadata"], "name": name, "uid": uid or f"u-{name}"}}


def key_of(
    name: str, cluster: str, *, days: float, ttl_days: int = 30, user: str = "gitops", used: bool = True
) -> dict[str, Any]:
    """A key of a former export, so many days old."""
    key = build_object(name, kind="OwnedAccessKey", spec={"user": user, "ttl": ttl_days * DAY})
    if used:
        key["status"] = {"lastActivity": timestamp(datetime.now(UTC))}
    key["metadata"]["annotations"] = {"service.sh/export-cluster-uid": f"u-{cluster}"}
    key["metadata"]["creationTimestamp"] = timestamp(datetime.now(UTC) - timedelta(days=days))
    return key


@pytest.fixture
def export(ops: CliFixture) -> CliFixture:
    """A server with the clusters berlin and oslo, which creates keys."""
    count = 0

    def create(request: Request) -> tuple[int, Any]:
        nonlocal count
        count += 1
        meta = {"name": f"new-{count}", "creationTimestamp": timestamp(datetime.now(UTC))}
        return 201, {**request.body, "metadata": meta, "spec": {**request.body["spec"], "key": f"fairlead_{count}"}}

    ops.fake.on("GET", CLUSTERS, list_response(named("berlin"), named("oslo")))
    for name in ("berlin", "oslo"):
        ops.fake.on("GET", f"{CLUSTERS}/{name}", (200, named(name)))
    ops.fake.on("GET", KEYS, list_response())
    ops.fake.on("POST", KEYS, create)
    return ops


def exported(out: str) -> dict[str, str]:
    """The key of each exported cluster."""
    found = {}
    for secret in yaml.safe_load_all(out):
        data = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
        found[data["name"]] = json.loads(data["config"])["bearerToken"]
    return found


def test_every_cluster_gets_a_secret_with_a_key_for_its_gateway_alone(export: CliFixture) -> None:
    result = export.run("cluster", "export", "argocd", "--all", "--user", "gitops")
    assert result.code == 0, result.err
    assert exported(result.out) == {"berlin": "fairlead_1", "oslo": "fairlead_2"}
    body = export.fake.requests_to("POST", KEYS)[0].body
    assert body["spec"] == {
        **{"displayName": "Gateway of cluster berlin", "type": "Other", "user": "gitops", "ttl": 30 * DAY},
        "scope": {"rules": [{"requestTargets": ["Cluster"], "cluster": "berlin"}]},
    }
    assert body["metadata"]["labels"] == {
        **{"service.sh/export": "argocd", "service.sh/export-cluster": "berlin", "service.sh/export-for": "argocd"}
    }
    assert body["metadata"]["annotations"] == {"service.sh/export-cluster-uid": "u-berlin"}
    assert "fairlead_1" not in result.err


def test_a_second_run_prints_only_what_is_due(export: CliFixture) -> None:
    export.fake.on("GET", KEYS, list_response(key_of("old", "berlin", days=14), key_of("older", "oslo", days=16)))
    result = export.run("cluster", "export", "argocd", "--all", "--user", "gitops")
    assert list(exported(result.out)) == ["oslo"]
    assert "berlin: its key old is not due" in result.err
    selector = export.fake.requests_to("GET", KEYS)[0].query["labelSelector"]
    assert selector == "service.sh/export=argocd,service.sh/export-for=argocd"


def test_with_rotate_the_key_in_use_stays_until_the_new_one_is_used(export: CliFixture) -> None:
    export.fake.on("GET", KEYS, list_response(key_of("old", "berlin", days=1)))
    arguments = ("cluster", "export", "argocd", "berlin", "--user", "gitops", "--rotate", "--overlap", "1h")
    result = export.run(*arguments)
    assert result.code == 0, result.err
    assert list(exported(result.out)) == ["berlin"]
    assert "former keys end when a later run finds the new ones in use" in result.err
    assert [each for each in export.fake.requests if each.method == "PATCH"] == []


def test_former_keys_end_after_the_overlap_once_a_newer_one_is_used(export: CliFixture) -> None:
    keys = [key_of("old", "berlin", days=2), key_of("new", "berlin", days=1), key_of("ending", "berlin", days=29.99)]
    export.fake.on("GET", KEYS, list_response(*keys))
    export.fake.on("PATCH", f"{KEYS}/old", (200, {}))
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops", "--overlap", "1h")
    assert result.code == 0, result.err
    assert exported(result.out) == {}
    assert "berlin: its key new is not due" in result.err
    (patch,) = export.fake.requests_to("PATCH", f"{KEYS}/old")
    assert patch.body["spec"]["ttl"] == pytest.approx(2 * DAY + 3600, abs=120)
    assert export.fake.requests_to("PATCH", f"{KEYS}/ending") == []  # it ends by itself before that


def test_a_secret_that_was_not_applied_is_printed_again_and_the_key_in_use_stays(export: CliFixture) -> None:
    keys = [
        key_of("used", "berlin", days=16),
        key_of("lost", "berlin", days=2, used=False),
        key_of("lost-too", "berlin", days=1, used=False),
    ]
    export.fake.on("GET", KEYS, list_response(*keys))
    export.fake.on("PATCH", f"{KEYS}/lost", (200, {}))
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert result.code == 0, result.err
    assert list(exported(result.out)) == ["berlin"]
    assert "its key lost-too was never used, but used is: was the Secret applied?" in result.err
    changed = [each.path for each in export.fake.requests if each.method == "PATCH"]
    assert changed == [f"{KEYS}/lost"]  # that there are never more than a few


def test_a_new_key_has_an_hour_to_be_used(export: CliFixture) -> None:
    keys = [key_of("used", "berlin", days=16), key_of("new", "berlin", days=0.02, used=False)]
    export.fake.on("GET", KEYS, list_response(*keys))
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert exported(result.out) == {}
    assert "berlin: its key new is not due" in result.err


def test_where_no_key_was_ever_used_there_is_no_other_before_it_is_due(export: CliFixture) -> None:
    """The tool may know the cluster, and have nothing to do in it."""
    export.fake.on("GET", KEYS, list_response(key_of("new", "berlin", days=14, used=False)))
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert exported(result.out) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"user": "ada", "ttl": 30 * DAY}},
        {"spec": {"user": "gitops", "ttl": 30 * DAY, "disabled": True}},
        {"status": {"expired": "2026-01-01T00:00:00Z"}},
        {"spec": {"user": "gitops"}},
    ],
    ids=["another user", "disabled", "expired", "without an end"],
)
def test_keys_that_the_tool_cannot_use_do_not_count(export: CliFixture, change: dict[str, Any]) -> None:
    export.fake.on("GET", KEYS, list_response({**key_of("old", "berlin", days=1), **change}))
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert list(exported(result.out)) == ["berlin"]


def test_the_key_of_a_former_cluster_of_the_same_name_does_not_count(export: CliFixture) -> None:
    export.fake.on("GET", KEYS, list_response(key_of("old", "berlin-of-last-year", days=1)))
    assert list(exported(export.run("cluster", "export", "argocd", "berlin", "--user", "gitops").out)) == ["berlin"]


def test_after_an_error_the_secrets_of_keys_that_exist_are_printed(export: CliFixture) -> None:
    created = export.fake.responses["POST", KEYS][0]
    export.fake.on("POST", KEYS, created, (403, failure_status(403, "Forbidden", "too many keys")))
    result = export.run("cluster", "export", "argocd", "--all")
    assert (result.code, list(exported(result.out))) == (1, ["berlin"])
    assert "too many keys" in result.err


def test_profiles_need_no_key(export: CliFixture) -> None:
    result = export.run("cluster", "export", "clusterprofile", "berlin", "-n", "fleet", "--server-url", "https://f.lan")
    (profile,) = yaml.safe_load_all(result.out)
    assert profile["metadata"]["namespace"] == "fleet"
    endpoint = profile["status"]["accessProviders"][0]["cluster"]
    assert endpoint["server"] == "https://f.lan/kubernetes/cluster/berlin"
    assert base64.b64decode(endpoint["certificate-authority-data"]).decode().startswith("-----BEGIN CERTIFICATE")
    assert export.fake.requests_to("POST", KEYS) == []


def test_a_loopback_address_causes_a_warning(export: CliFixture) -> None:
    result = export.run("cluster", "export", "clusterprofile", "berlin")
    assert "is a loopback address" in result.err
    assert (
        "warning"
        not in export.run("cluster", "export", "clusterprofile", "berlin", "--server-url", "https://f.lan").err
    )


def test_the_warning_about_rules_is_left_out_and_others_are_shown(export: CliFixture) -> None:
    export.fake.warnings += [
        '299 - "spec.scope.rules is deprecated: name projects, spaces and virtualClusters instead"',
        '299 - "something else"',
    ]
    err = export.run("cluster", "export", "argocd", "berlin").err
    assert "something else" in err
    assert "rules" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("argocd",), "name clusters, or set --all or --selector"),
        (("argocd", "berlin", "--all"), "one of the three"),
        (("argocd", "--all", "--ttl", "0s"), "is not a duration"),
        (("clusterprofile", "--all", "--rotate"), "a ClusterProfile contains no key"),
        (("argocd", "--all", "--server-url", "http://f.lan"), "is not a URL like https"),
        (("flux", "--all"), "flux"),
    ],
)
def test_wrong_arguments_are_explained(export: CliFixture, arguments: tuple[str, ...], message: str) -> None:
    result = export.run("cluster", "export", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert export.fake.requests_to("POST", KEYS) == []


def test_no_matching_cluster_is_said(export: CliFixture) -> None:
    export.fake.on("GET", CLUSTERS, list_response())
    result = export.run("cluster", "export", "argocd", "-l", "env=none")
    assert (result.code, result.out) == (0, "")
    assert "no cluster matches" in result.err


def allow_use(cli: CliFixture, plural: str, *clusters: str) -> None:
    """A server that lets the subject of a review use these clusters; with an empty name, all."""

    def review(request: Request) -> tuple[int, Any]:
        assert request.body["spec"]["resourceAttributes"]["verb"] == "use"
        name = request.body["spec"]["resourceAttributes"].get("name", "")
        return 201, {"status": {"allowed": name in clusters or "" in clusters}}

    cli.fake.on("POST", f"{M}/{plural}", review)


def test_clusters_that_the_user_may_not_use_cause_a_warning_with_the_command_that_grants_it(export: CliFixture) -> None:
    shared = {**named("oslo"), "spec": {"access": [{"verbs": ["use"], "users": ["ada"]}]}}
    export.fake.on("GET", CLUSTERS, list_response(named("berlin"), shared, named("rome")))
    allow_use(export, "subjectaccessreviews", "rome")
    result = export.run("cluster", "export", "argocd", "--all", "--user", "gitops")
    assert (result.code, list(exported(result.out))) == (0, ["berlin", "oslo", "rome"])
    assert "warning: the user gitops may not `use` berlin, oslo: their gateways refuse the keys" in result.err
    berlin, oslo = re.findall(r"kubectl patch cluster \S+ --type json -p '(.*)'", result.err)
    entry = {"verbs": ["get", "use"], "users": ["gitops"]}
    assert json.loads(berlin) == [{"op": "add", "path": "/spec/access", "value": [entry]}]
    assert json.loads(oslo) == [{"op": "add", "path": "/spec/access/-", "value": entry}]  # the others' entries stay
    subjects = {each.body["spec"]["user"] for each in export.fake.requests_to("POST", f"{M}/subjectaccessreviews")}
    assert subjects == {"gitops"}


def test_the_warning_is_repeated_while_no_key_is_due(export: CliFixture) -> None:
    export.fake.on("GET", KEYS, list_response(key_of("old", "berlin", days=1)))
    allow_use(export, "subjectaccessreviews")
    result = export.run("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert "warning: the user gitops may not `use` berlin: its gateway refuses the key\n" in result.err


def test_a_user_who_may_use_all_clusters_takes_one_review(export: CliFixture) -> None:
    allow_use(export, "subjectaccessreviews", "")
    result = export.run("cluster", "export", "argocd", "--all", "--user", "gitops")
    assert "may not" not in result.err
    assert len(export.fake.requests_to("POST", f"{M}/subjectaccessreviews")) == 1


def test_without_a_user_the_own_access_is_checked(export: CliFixture) -> None:
    allow_use(export, "selfsubjectaccessreviews", "berlin")
    result = export.run("cluster", "export", "argocd", "--all")
    assert "warning: the user alice may not `use` oslo" in result.err


def test_the_commands_for_a_large_fleet_are_limited(export: CliFixture) -> None:
    export.fake.on("GET", CLUSTERS, list_response(*(named(f"c{number}") for number in range(30))))
    allow_use(export, "subjectaccessreviews")
    err = export.run("cluster", "export", "argocd", "--all", "--user", "gitops").err
    assert err.count("kubectl patch cluster") == 5
    assert "and 25 more" in err


def test_access_that_cannot_be_checked_is_said_and_the_export_succeeds(export: CliFixture) -> None:
    refused = (403, failure_status(403, "Forbidden", "not for you"))
    export.fake.on("POST", f"{M}/subjectaccessreviews", refused)
    result = export.run("cluster", "export", "argocd", "--all", "--user", "gitops")
    assert (result.code, len(exported(result.out))) == (0, 2)
    assert "could not be checked" in result.err
    assert "fairlead who-can use clusters NAME" in result.err


def test_keys_are_mentioned_only_if_some_were_printed(export: CliFixture) -> None:
    arguments = ("cluster", "export", "argocd", "berlin", "--user", "gitops")
    assert "exported 1 of 1 clusters; the Secrets contain access keys\n" in export.run(*arguments).err
    export.fake.on("GET", KEYS, list_response(key_of("old", "berlin", days=1)))
    assert "exported 0 of 1 clusters\n" in export.run(*arguments).err
