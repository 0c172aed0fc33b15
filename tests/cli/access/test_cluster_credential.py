"""fairlead credential --cluster-info: a key for the gateway of one cluster, for the consumer of a ClusterProfile."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.client.contexts import save_contexts
from fairlead.core.clock import timestamp
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request

KEYS = f"{M}/ownedaccesskeys"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def exec_info(server: str, version: str = "client.authentication.k8s.io/v1") -> str:
    spec = {"cluster": {"server": server, "config": {"clusterName": "other"}}, "interactive": False}
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})


@pytest.fixture
def plugin(user: CliFixture) -> CliFixture:
    def create(request: Request) -> tuple[int, Any]:
        meta = {"name": "export-berlin-1", "creationTimestamp": timestamp(datetime.now(UTC))}
        return 201, {**request.body, "metadata": meta, "spec": {**request.body["spec"], "key": "fairlead_new"}}

    user.fake.on("POST", KEYS, create)
    return user


def test_the_key_is_for_the_gateway_that_the_caller_names(plugin: CliFixture) -> None:
    server = f"{plugin.fake.url}/kubernetes/cluster/berlin"
    result = plugin.run("credential", "--cluster-info", KUBERNETES_EXEC_INFO=exec_info(server, V1BETA1))
    assert result.code == 0, result.err
    credential = json.loads(result.out)
    assert (credential["apiVersion"], credential["kind"]) == (V1BETA1, "ExecCredential")
    assert credential["status"]["token"] == "fairlead_new"
    renewal = datetime.fromisoformat(credential["status"]["expirationTimestamp"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < renewal < timedelta(minutes=60)
    (request,) = plugin.fake.requests_to("POST", KEYS)
    assert request.body["spec"]["scope"] == {"rules": [{"requestTargets": ["Cluster"], "cluster": "berlin"}]}
    assert request.body["spec"]["ttl"] == 3600
    assert request.body["metadata"]["labels"]["service.sh/export"] == "clusterprofile"


@pytest.mark.parametrize(
    "server",
    [
        "https://evil.example.com/kubernetes/cluster/berlin",
        "{url}.evil.example.com/kubernetes/cluster/berlin",
        "{url}/kubernetes/management",
        "{url}/kubernetes/cluster/",
        "{url}/kubernetes/cluster/berlin/../oslo",
        "{url}/kubernetes/cluster/a%2Fb/c",
        "{url}/kubernetes/project/web/space/dev",
        "{url}",
    ],
)
def test_what_is_not_a_gateway_of_the_own_server_gets_no_key(plugin: CliFixture, server: str) -> None:
    info = exec_info(server.replace("{url}", plugin.fake.url))
    result = plugin.run("credential", "--cluster-info", KUBERNETES_EXEC_INFO=info)
    assert (result.code, result.out) == (1, "")
    assert "is not the gateway of a cluster at" in result.err
    assert plugin.fake.requests_to("POST", KEYS) == []


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("", "set provideClusterInfo to true"),
        ("{}", "set provideClusterInfo to true"),
        ('{"spec": {"cluster": {"server": 1}}}', "set provideClusterInfo to true"),
        ("not JSON", "is not JSON"),
    ],
)
def test_missing_information_is_explained(plugin: CliFixture, info: str, message: str) -> None:
    result = plugin.run("credential", "--cluster-info", KUBERNETES_EXEC_INFO=info)
    assert (result.code, result.out) == (1, "")
    assert message in result.err


def test_the_key_does_not_outlive_the_login(plugin: CliFixture) -> None:
    stored = plugin.load_contexts()
    login = replace(stored.contexts["test"], expires=timestamp(datetime.now(UTC) + timedelta(minutes=10)))
    save_contexts(plugin.contexts_file, stored.with_login("test", login))
    server = f"{plugin.fake.url}/kubernetes/cluster/berlin"
    assert plugin.run("credential", "--cluster-info", KUBERNETES_EXEC_INFO=exec_info(server)).code == 0
    (request,) = plugin.fake.requests_to("POST", KEYS)
    assert 300 < request.body["spec"]["ttl"] < 600
