"""A server for the tests of workload identity, tokens of CI jobs, and clusters with service accounts."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.fake_cluster.token_reviews import TokenReviews
from tests.harness.gateways import M, connect_cluster, create_resource
from tests.harness.openid_issuer import OpenIdIssuer, sign
from tests.harness.server_process import MANAGEMENT, Server, running_server

AUDIENCE = "fairlead:one-installation"
CONFIG = f"{M}/configs/service-manager-config"
SELF = f"{M}/selves"
SCOPE = {"projects": [{"project": "web"}], "allowServiceCli": True}
REPOSITORY = {"repository_id": "74", "ref": "refs/heads/main"}


@contextmanager
def run_workload_server(folder: Path) -> Iterator[Server]:
    """A server with the user ci, the team builders and the service account default/deployer."""
    with running_server(folder / "data", cluster_networks="127.0.0.0/8") as running:
        with running.client() as admin:
            create_resource(admin, "users", "User", "ci")
            create_resource(admin, "teams", "Team", "builders")
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer"}}
            path = f"{MANAGEMENT}/api/v1/namespaces/default/serviceaccounts"
            assert admin.post(path, json=account).status_code == 201
        yield running
        running.stop()
        assert "Traceback" not in running.log.read_text()


def build_rule(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "user": "ci", "scope": SCOPE, **fields}


def issuer_rule(name: str, running: OpenIdIssuer, **fields: Any) -> dict[str, Any]:
    source = {"issuer": running.url, "ca": get_authority().pem, "allowLoopback": True, "claims": REPOSITORY}
    return build_rule(name, **{**source, **fields})


def write_rules(server: Server, *rules: dict[str, Any], audience: str = AUDIENCE) -> httpx.Response:
    raw = yaml.safe_dump({"auth": {"workloadIdentity": {"audience": audience, "rules": list(rules)}}})
    with server.client() as admin:
        merge = {"Content-Type": "application/merge-patch+json"}
        return admin.patch(CONFIG, json={"spec": {"raw": raw}}, headers=merge)


def job_token(issuer: OpenIdIssuer, key: str = "rsa", **claims: Any) -> str:
    """A token of a CI job, as GitHub issues it."""
    now = int(time.time())
    found = {
        **{"iss": issuer.url, "aud": AUDIENCE, "sub": "repo:acme/web:ref:refs/heads/main", "jti": str(uuid.uuid4())},
        **{"iat": now, "nbf": now, "exp": now + 300, "event_name": "push", "run_id": "4711", "repository": "acme/web"},
        **{**REPOSITORY, **claims},
    }
    return sign({name: value for name, value in found.items() if value is not None}, key)


def exchange_form(token: str, **fields: str) -> dict[str, str]:
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "subject_token": token,
        **fields,
    }


async def exchange(server: Server, token: str, **fields: str) -> httpx.Response:
    return await asyncio.to_thread(post_form, server, exchange_form(token, **fields))


def post_form(server: Server, form: dict[str, str]) -> httpx.Response:
    with server.client(None) as client:
        return client.post("/auth/token", data=form)


async def rejection_reason(server: Server, token: str, **fields: str) -> str:
    """The reason in the error of a rejected exchange."""
    response = await exchange(server, token, **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"] == "invalid_request"
    assert token not in response.text
    return str(response.json()["error_description"]).partition("(")[2].partition(")")[0]


def read_self(server: Server, key: str) -> dict[str, Any]:
    with server.client(key) as client:
        response = client.post(SELF, json={})
        assert response.status_code == 201, response.text
        found: dict[str, Any] = response.json()["status"]
        return found


@contextmanager
def run_two_clusters(server: Server) -> Iterator[dict[str, tuple[TokenReviews, FakeCluster]]]:
    """Two clusters with the same issuer name, and the service account default/builder in both."""
    reviews = {"oslo": TokenReviews(), "paris": TokenReviews()}
    with (
        FakeCluster(reviews["oslo"], ClusterOptions(token="stored")) as oslo,
        FakeCluster(reviews["paris"], ClusterOptions(token="stored", uid=str(uuid.uuid4()))) as paris,
        server.client() as admin,
    ):
        clusters = {"oslo": oslo, "paris": paris}
        for name, cluster in clusters.items():
            reviews[name].add_account("default", "builder")
            connect_cluster(admin, name, cluster.build_kubeconfig(token="stored"))
        try:
            yield {name: (reviews[name], cluster) for name, cluster in clusters.items()}
        finally:
            for name in clusters:
                admin.delete(f"{M}/clusters/{name}")
                admin.delete(f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets/cluster-{name}")


def create_operator(server: Server, name: str, *rules: dict[str, Any]) -> str:
    """A user with a cluster role of these rules. Returns a key of it."""
    with server.client() as admin:
        create_resource(admin, "users", "User", name)
        group, meta = "rbac.authorization.k8s.io", {"metadata": {"name": name}}
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", **meta, "rules": list(rules)}
        binding = {
            **{"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", **meta},
            "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
            "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": group},
        }
        for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            assert admin.post(f"{MANAGEMENT}/apis/{group}/v1/{plural}", json=body).status_code == 201
        key: str = create_resource(admin, "ownedaccesskeys", "OwnedAccessKey", name, user=name)["spec"]["key"]
        return key


def account_rule(name: str, cluster: str, **fields: Any) -> dict[str, Any]:
    return build_rule(name, cluster=cluster, **{"namespace": "default", "serviceAccountName": "builder", **fields})


def run_command(server: Server, *arguments: str) -> tuple[int, str]:
    """Runs a command as an administrator; returns its exit code and all output."""
    variables = {"FAIRLEAD_URL": server.url, "FAIRLEAD_KEY": server.key, "FAIRLEAD_CA_FILE": server.ca_file}
    command = [sys.executable, "-m", "fairlead", *arguments]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
