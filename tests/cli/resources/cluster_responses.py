"""Responses of a fake server about the cluster `berlin`, for the `fairlead cluster` commands."""

from typing import Any

import yaml

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object
from tests.harness.watch_responses import END, build_watch_response

CLUSTERS = f"{M}/clusters"

SECRETS = "/kubernetes/management/api/v1/namespaces/service-system/secrets"

SECRET = f"{SECRETS}/cluster-berlin"

EVENTS = "/kubernetes/management/api/v1/namespaces/default/events"

LABEL = "service.sh/cluster-kubeconfig"

SERVER = "https://berlin.example.com:6443"

TOKEN = "t-0123456789"

PROBES = [{"name": "version", "ok": True, "message": "v1.31.0"}, {"name": "readyz", "ok": True, "message": "ok"}]


def build_condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}


def build_cluster(**status: Any) -> dict[str, Any]:
    config = {"secretName": "cluster-berlin", "secretNamespace": "service-system", "key": "config"}
    cluster = build_object("berlin", kind="Cluster", spec={"config": config}, status=status)
    cluster["metadata"]["uid"] = "1"
    return cluster


def build_healthy_cluster(**more: Any) -> dict[str, Any]:
    conditions = [build_condition("Connected", "True"), build_condition("Ready", "True")]
    status = {"phase": "Initialized", "online": True, "version": "v1.31.0", "nodes": 3}
    return build_cluster(**status, conditions=conditions, probes=PROBES, **more)


def build_secret(**labels: str) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": "cluster-berlin", "labels": labels}}


def build_cluster_watch(*states: dict[str, Any]) -> tuple[int, bytes]:
    """The response of a watch that begins with a cluster that is not probed yet."""
    added = {"type": "ADDED", "object": build_cluster()}
    return build_watch_response(added, END, *({"type": "MODIFIED", "object": each} for each in states))


def write_kubeconfig(cli: CliFixture, user: dict[str, Any]) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "the desk", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "the desk",
    }
    path = cli.home / ".kube" / "config"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(config))
