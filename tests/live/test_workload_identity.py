"""Workload identity over HTTP: tokens of a CI issuer become access keys."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml

from tests.harness.eventually import eventually
from tests.harness.gateways import M, create_resource
from tests.harness.log_lines import read_lines
from tests.harness.openid_issuer import OpenIdIssuer, run_issuer
from tests.harness.server_process import MANAGEMENT, Server
from tests.live.workload_setup import (
    AUDIENCE,
    CONFIG,
    REPOSITORY,
    SCOPE,
    SELF,
    build_rule,
    create_operator,
    exchange,
    issuer_rule,
    job_token,
    read_self,
    rejection_reason,
    run_workload_server,
    write_rules,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, workers: None) -> Iterator[Server]:
    with run_workload_server(tmp_path_factory.mktemp("workload")) as running:
        yield running


@pytest.fixture
async def issuer() -> AsyncIterator[OpenIdIssuer]:
    async with run_issuer() as running:
        yield running


async def test_a_job_gets_a_key_that_acts_as_the_user_of_the_rule_within_its_scope(
    server: Server, issuer: OpenIdIssuer
) -> None:
    assert write_rules(server, issuer_rule("deploy", issuer, maxTTLSeconds=120)).status_code == 200
    response = await exchange(server, job_token(issuer))
    assert response.status_code == 200, response.text
    body = response.json()
    assert set(body) == {"access_token", "issued_token_type", "token_type", "expires_in"}
    assert body["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert (body["token_type"], body["expires_in"]) == ("Bearer", 120)
    assert response.headers["cache-control"] == "no-store"
    found = read_self(server, body["access_token"])
    assert found["user"]["name"] == "ci"
    with server.client() as admin:
        spec = admin.get(f"{M}/ownedaccesskeys/{found['accessKey']}").json()["spec"]
        assert (spec["user"], spec["ttl"], spec["scope"]) == ("ci", 120, SCOPE)
    with server.client(body["access_token"]) as job:
        assert job.get(f"{M}/clusters").status_code == 403


async def test_a_key_never_outlives_the_token(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("deploy", issuer, maxTTLSeconds=3600))
    end = int(time.time()) + 90
    response = await exchange(server, job_token(issuer, exp=end))
    assert response.json()["expires_in"] <= end - int(time.time()) + 1 <= 91
    # Within the tolerated clock skew, but over.
    assert await rejection_reason(server, job_token(issuer, exp=int(time.time()) - 5)) == "expired"
    assert await rejection_reason(server, job_token(issuer, exp=int(time.time()) + 3 * 24 * 3600)) == "invalid_time"


async def test_a_token_is_used_once_also_in_parallel(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    token = job_token(issuer)
    statuses = sorted(
        response.status_code for response in await asyncio.gather(*(exchange(server, token) for _ in range(6)))
    )
    assert statuses == [200, 400, 400, 400, 400, 400]
    assert await rejection_reason(server, token) == "replayed"
    without_id = job_token(issuer, jti=None)
    assert (await exchange(server, without_id)).status_code == 200
    assert await rejection_reason(server, without_id) == "replayed"


async def test_the_use_of_a_token_stays_recorded_if_its_key_is_deleted(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("once", issuer))
    token = job_token(issuer)
    assert (await exchange(server, token)).status_code == 200
    with server.client() as admin:
        for key in admin.get(f"{M}/ownedaccesskeys?labelSelector=service.sh/trust-rule=once").json()["items"]:
            assert admin.delete(f"{M}/ownedaccesskeys/{key['metadata']['name']}").status_code == 200
    assert await rejection_reason(server, token) == "replayed"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"repository_id": "75"}, "no_rule"),
        ({"repository_id": 74}, "no_rule"),
        ({"repository_id": ["74"]}, "no_rule"),
        ({"repository_id": None}, "no_rule"),
        ({"ref": "refs/heads/main2"}, "no_rule"),
        ({"event_name": "pull_request"}, "pull_request"),
        ({"event_name": "pull_request_target"}, "pull_request"),
        ({"pipeline_source": "merge_request_event"}, "pull_request"),
        ({"aud": None}, "wrong_audience"),
        ({"aud": "fairlead:another-installation"}, "wrong_audience"),
        ({"aud": [AUDIENCE, "https://vault.example"]}, "wrong_audience"),
        ({"aud": []}, "wrong_audience"),
        ({"iss": "https://evil.example"}, "untrusted_issuer"),
        ({"iss": None}, "untrusted_issuer"),
        ({"iat": int(time.time()) + 86_400}, "issued_in_future"),
    ],
)
async def test_other_tokens_are_rejected_with_a_reason(
    server: Server, issuer: OpenIdIssuer, claims: dict[str, Any], reason: str
) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    assert await rejection_reason(server, job_token(issuer, **claims)) == reason


async def test_forged_signatures_are_rejected(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    assert await rejection_reason(server, job_token(issuer, "rsa9")) == "unknown_key"
    assert await rejection_reason(server, "a.b.c") in ("token_malformed",)


async def test_the_first_rule_that_matches_applies(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(
        server,
        issuer_rule("release", issuer, claims={**REPOSITORY, "ref": "refs/tags/v1"}),
        issuer_rule("team", issuer, user=None, team="builders"),
        issuer_rule("deploy", issuer),
    )
    key = (await exchange(server, job_token(issuer))).json()["access_token"]
    assert read_self(server, key)["team"]["name"] == "builders"


async def test_a_rule_can_allow_pull_requests(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("preview", issuer, allowPullRequests=True))
    assert (await exchange(server, job_token(issuer, event_name="pull_request"))).status_code == 200


async def test_a_rule_can_name_a_service_account_of_this_server(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("account", issuer, user=None, serviceAccount="default/deployer"))
    key = (await exchange(server, job_token(issuer))).json()["access_token"]
    with server.client(key) as client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = f"{MANAGEMENT}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        review = client.post(path, json=body).json()
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:default:deployer"


@pytest.mark.parametrize("principal", [{"user": "absent"}, {"uid": "00000000-0000-0000-0000-000000000000"}])
async def test_a_rule_for_a_principal_that_is_gone_issues_no_key(
    server: Server, issuer: OpenIdIssuer, principal: dict[str, str]
) -> None:
    write_rules(server, issuer_rule("deploy", issuer, **principal))
    assert await rejection_reason(server, job_token(issuer)) == "no_principal"


async def test_a_disabled_user_gets_no_key_and_loses_the_ones_it_has(server: Server, issuer: OpenIdIssuer) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    with server.client() as admin:
        create_resource(admin, "users", "User", "leaver")
        write_rules(server, issuer_rule("leaver", issuer, user="leaver"))
        key = (await exchange(server, job_token(issuer))).json()["access_token"]
        admin.patch(f"{M}/users/leaver", json={"spec": {"disabled": True}}, headers=merge)
    with server.client(key) as client:
        assert client.post(SELF, json={}).status_code == 401
    assert await rejection_reason(server, job_token(issuer)) == "no_principal"


async def test_an_exchanged_key_cannot_be_exchanged_nor_extended(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    key = (await exchange(server, job_token(issuer))).json()["access_token"]
    assert await rejection_reason(server, key) == "token_malformed"
    with server.client(key) as client:
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "longer"}}
        for spec in ({}, {"ttl": 86400}, {"ttl": 60}):
            assert client.post(f"{M}/ownedaccesskeys", json={**body, "spec": spec}).status_code == 403


async def test_tokens_of_this_server_are_never_exchanged(server: Server, issuer: OpenIdIssuer) -> None:
    with server.client() as admin:
        own = admin.get("/.well-known/openid-configuration").json()["issuer"]
    write_rules(server, issuer_rule("own", issuer, issuer=own))
    assert await rejection_reason(server, job_token(issuer, iss=own)) == "untrusted_issuer"


async def test_nothing_is_exchanged_without_rules(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server)
    assert await rejection_reason(server, job_token(issuer)) == "not_configured"


async def test_an_issuer_that_is_down_is_a_temporary_error(server: Server, issuer: OpenIdIssuer) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    issuer.publish("/keys", b"oops", 500)
    response = await exchange(server, job_token(issuer))
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")


@pytest.mark.parametrize(
    "fields",
    [
        {"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"},
        {"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
        {"actor_token": "x"},
        {"scope": "admin"},
        {"resource": "https://other.example"},
        {"audience": "other"},
        {"cluster": "x" * 300},
        {"subject_token": ""},
        {"subject_token": "x" * 17_000},
    ],
)
async def test_requests_for_anything_else_are_rejected(
    server: Server, issuer: OpenIdIssuer, fields: dict[str, str]
) -> None:
    write_rules(server, issuer_rule("deploy", issuer))
    response = await exchange(server, job_token(issuer), **fields)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


async def test_the_audit_log_has_the_rule_the_run_and_the_reason_but_no_token(
    server: Server, issuer: OpenIdIssuer
) -> None:
    write_rules(server, issuer_rule("audited", issuer))
    token = job_token(issuer, run_id="981273")
    key = (await exchange(server, token)).json()["access_token"]
    await exchange(server, token)
    folder = server.log.parent / "data"

    def read_events(name: str) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in read_lines(folder / name) if "/auth/token" in line]
        return [event for event in events if event["annotations"].get("service.sh/trust-rule") == "audited"]

    (issued,) = await eventually(lambda: read_events("audit.log"), 40)
    (replayed,) = await eventually(lambda: read_events("audit.unauthenticated.log"), 40)
    assert issued["annotations"]["service.sh/trust-run"] == "981273"
    assert issued["annotations"]["service.sh/trust-subject"] == "repo:acme/web:ref:refs/heads/main"
    assert issued["user"]["username"] == "ci"
    assert replayed["annotations"]["service.sh/login-failure"] == "replayed"
    text = "".join(file.read_text() for file in (*folder.glob("audit*.log"), server.log))
    assert token not in text and token.rpartition(".")[2] not in text and key not in text


def test_only_administrators_change_the_rules(server: Server) -> None:
    key = create_operator(
        server, "operator", {"apiGroups": ["management.service.sh"], "resources": ["configs"], "verbs": ["*"]}
    )
    write_rules(server)
    merge = {"Content-Type": "application/merge-patch+json"}
    rule = build_rule("evil", issuer="https://evil.example", claims={"sub": "me"}, user="admin")
    settings = {"auth": {"workloadIdentity": {"audience": AUDIENCE, "rules": [rule]}}}
    with server.client(key) as operator:
        response = operator.patch(CONFIG, json={"spec": {"raw": yaml.safe_dump(settings)}}, headers=merge)
        assert response.status_code == 403, response.text
        same = {"auth": {"workloadIdentity": {"audience": AUDIENCE, "rules": []}, "accessKeyMaxTTLSeconds": 0}}
        response = operator.patch(CONFIG, json={"spec": {"raw": yaml.safe_dump(same)}}, headers=merge)
        assert response.status_code == 200, response.text
