"""Workload identity of service accounts of connected clusters, and the commands that write the rules."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import build_json_response
from tests.harness.gateways import M
from tests.harness.openid_issuer import OpenIdIssuer, run_issuer
from tests.harness.server_process import MANAGEMENT, Server
from tests.live.workload_setup import (
    AUDIENCE,
    CONFIG,
    SELF,
    account_rule,
    create_operator,
    exchange,
    job_token,
    read_self,
    rejection_reason,
    run_command,
    run_two_clusters,
    run_workload_server,
    write_rules,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_workload_server(tmp_path_factory.mktemp("workload")) as running:
        yield running


@pytest.fixture
async def issuer() -> AsyncIterator[OpenIdIssuer]:
    async with run_issuer() as running:
        yield running


async def test_service_accounts_of_a_connected_cluster_are_reviewed_by_that_cluster(server: Server) -> None:
    with run_two_clusters(server) as clusters:
        (oslo, oslo_cluster), (paris, _) = clusters["oslo"], clusters["paris"]
        assert write_rules(server, account_rule("pods", "oslo")).status_code == 200
        token = oslo.issue("default", "builder", AUDIENCE, pod="build-1")
        response = await exchange(server, token, cluster="oslo")
        assert response.status_code == 200, response.text
        assert read_self(server, response.json()["access_token"])["user"]["name"] == "ci"
        assert await rejection_reason(server, token, cluster="oslo") == "replayed"
        # The other cluster has the same issuer name, and the same account.
        foreign = paris.issue("default", "builder", AUDIENCE)
        assert await rejection_reason(server, foreign, cluster="oslo") == "not_authenticated"
        assert await rejection_reason(server, foreign, cluster="paris") == "untrusted_cluster"
        assert await rejection_reason(server, foreign) == "untrusted_issuer"
        sent = len([each for each in oslo_cluster.requests if each.path.endswith("tokenreviews")])
        oslo.add_account("default", "other")
        assert await rejection_reason(server, oslo.issue("default", "other", AUDIENCE), cluster="oslo") == "no_rule"
        assert await rejection_reason(server, oslo.issue("default", "builder"), cluster="oslo") == "wrong_audience"
        both = oslo.issue("default", "builder", AUDIENCE, "https://kubernetes.default.svc.cluster.local")
        assert await rejection_reason(server, both, cluster="oslo") == "wrong_audience"
        assert len([each for each in oslo_cluster.requests if each.path.endswith("tokenreviews")]) == sent


async def test_a_deleted_pod_or_account_gets_no_key(server: Server) -> None:
    with run_two_clusters(server) as clusters:
        oslo, _ = clusters["oslo"]
        write_rules(server, account_rule("pods", "oslo", serviceAccountUID=oslo.accounts["default", "builder"]))
        token = oslo.issue("default", "builder", AUDIENCE, pod="build-2")
        del oslo.pods["default", "build-2"]
        assert await rejection_reason(server, token, cluster="oslo") == "not_authenticated"
        token = oslo.issue("default", "builder", AUDIENCE)
        oslo.add_account("default", "builder")
        assert await rejection_reason(server, token, cluster="oslo") == "not_authenticated"
        # The rule names the uid of the account that it was written for.
        assert await rejection_reason(server, oslo.issue("default", "builder", AUDIENCE), cluster="oslo") == "no_rule"


async def test_a_cluster_that_checks_no_audiences_or_allows_no_reviews_gets_no_key(server: Server) -> None:
    with run_two_clusters(server) as clusters:
        oslo, cluster = clusters["oslo"]
        write_rules(server, account_rule("pods", "oslo"))
        oslo.checks_audiences = False
        token = oslo.issue("default", "builder", AUDIENCE)
        assert await rejection_reason(server, token, cluster="oslo") == "not_authenticated"
        oslo.checks_audiences, oslo.is_allowed = True, False
        response = await exchange(server, token, cluster="oslo")
        assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
        assert "system:auth-delegator" in response.json()["error_description"]
        cluster.stop()
        assert (await exchange(server, token, cluster="oslo")).status_code == 503
        cluster.start()


async def test_a_rule_does_not_apply_to_a_later_cluster_of_the_same_name(server: Server) -> None:
    with run_two_clusters(server) as clusters:
        oslo, _ = clusters["oslo"]
        write_rules(server, account_rule("pods", "oslo", clusterUID=str(uuid.uuid4())))
        token = oslo.issue("default", "builder", AUDIENCE)
        assert await rejection_reason(server, token, cluster="oslo") == "untrusted_cluster"
        with server.client() as admin:
            uid = admin.get(f"{M}/clusters/oslo").json()["metadata"]["uid"]
        write_rules(server, account_rule("pods", "oslo", clusterUID=uid))
        assert (await exchange(server, token, cluster="oslo")).status_code == 200


async def test_only_administrators_repoint_a_cluster_while_a_rule_names_it(server: Server) -> None:
    key = create_operator(
        server,
        "porter",
        {"apiGroups": ["management.service.sh"], "resources": ["clusters"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
    )
    merge = {"Content-Type": "application/merge-patch+json"}
    config = {"spec": {"config": {"secretName": "cluster-paris", "secretNamespace": "service-system"}}}
    secret = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/cluster-oslo"

    def patch(client: httpx.Client, path: str, body: object) -> httpx.Response:
        return client.patch(path, json=body, headers=merge)

    with run_two_clusters(server), server.client(key) as porter, server.client() as admin:
        content = {"data": admin.get(secret).json()["data"]}
        changed = {"data": {**content["data"], "extra": "eA=="}}
        assert write_rules(server, account_rule("pods", "oslo")).status_code == 200
        for path, body in ((f"{M}/clusters/oslo", config), (secret, changed)):
            refused = patch(porter, path, body)
            assert refused.status_code == 403, refused.text
            assert 'a rule in auth.workloadIdentity trusts tokens of cluster \\"oslo\\"' in refused.text
        assert patch(porter, f"{M}/clusters/oslo", {"spec": {"displayName": "Oslo"}}).status_code == 200
        assert patch(admin, secret, changed).status_code == 200
        assert write_rules(server).status_code == 200
        assert patch(porter, secret, content).status_code == 200  # no rule names it any more


async def test_the_commands_trust_a_job_and_a_service_account_and_revoke_their_keys(
    server: Server, issuer: OpenIdIssuer, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text(get_authority().pem)
    result = ("--as", "user/ci", "--project", "web")
    with run_two_clusters(server) as clusters:
        oslo, cluster = clusters["oslo"]
        account = {"metadata": {"name": "builder", "uid": oslo.accounts["default", "builder"]}}
        cluster.set_response("/api/v1/namespaces/default/serviceaccounts/builder", build_json_response(account))
        with server.client() as admin:
            merge = {"Content-Type": "application/merge-patch+json"}
            admin.patch(CONFIG, json={"spec": {"raw": ""}}, headers=merge).raise_for_status()
        for arguments in (
            ("issuer", "job", "--url", issuer.url, "--ca-file", str(ca), "--claim", "repository_id=74", *result),
            ("cluster", "oslo", "--namespace", "default", "--service-account", "builder", *result),
        ):
            code, text = await asyncio.to_thread(run_command, server, "trust", *arguments)
            assert code == 0, text
            audience = text.partition("with the audience ")[2].split()[0]
        assert audience.startswith("fairlead:")
        # The commands do not set allowLoopback, so the issuer on this machine is not asked.
        response = await exchange(server, job_token(issuer, aud=audience))
        assert response.status_code == 503
        response = await exchange(server, oslo.issue("default", "builder", audience), cluster="oslo")
        assert response.status_code == 200, response.text
        key = response.json()["access_token"]
        assert read_self(server, key)["user"]["name"] == "ci"
        code, text = await asyncio.to_thread(run_command, server, "trust", "remove", "oslo-default-builder")
        assert code == 0 and "revoked 1 key" in text, text
        with server.client(key) as client:
            assert client.post(SELF, json={}).status_code == 401
        token = oslo.issue("default", "builder", audience)
        assert await rejection_reason(server, token, cluster="oslo") == "untrusted_cluster"
