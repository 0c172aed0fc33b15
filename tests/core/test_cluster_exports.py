"""The objects by which GitOps tools know clusters, as Argo CD and the Cluster Inventory API read them."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from fairlead.core.cluster_exports import (
    ExportFormat,
    ExportKey,
    Gateways,
    build_argocd_secret,
    build_key,
    build_profile,
    secret_name,
)

AUTHORITY = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
GATEWAYS = Gateways("https://fairlead.example.com/", AUTHORITY, "u-install")
KEY = ExportKey("export-berlin-x", "fairlead_value", datetime(2026, 2, 1, tzinfo=UTC))
CLUSTER: dict[str, Any] = {
    "kind": "Cluster",
    "metadata": {
        "name": "berlin",
        "uid": "u-berlin",
        "labels": {
            "env": "prod",
            "service.sh/x": "1",
            "argocd.argoproj.io/secret-type": "repository",
            "argocd.argoproj.io/auto-label-cluster-info": "true",
            "app.kubernetes.io/instance": "guestbook",
            "app.kubernetes.io/managed-by": "argocd",
        },
    },
    "spec": {"displayName": "Berlin"},
    "status": {
        "version": "v1.34.1",
        "conditions": [
            {
                **{"type": "Ready", "status": "True", "reason": "Healthy", "message": "ok"},
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    },
}


def decode(secret: dict[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


def test_a_secret_has_the_form_that_argo_cd_parses() -> None:
    secret = build_argocd_secret(CLUSTER, GATEWAYS, KEY, "argocd", "")
    data = decode(secret)
    assert json.loads(data.pop("config")) == {
        "bearerToken": "fairlead_value",
        "tlsClientConfig": {"insecure": False, "caData": base64.b64encode(AUTHORITY.encode()).decode()},
    }
    assert data == {"name": "berlin", "server": "https://fairlead.example.com/kubernetes/cluster/berlin"}
    assert {name: secret[name] for name in ("apiVersion", "kind", "type", "metadata")} == {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": "fairlead-berlin",
            "namespace": "argocd",
            "labels": {
                "argocd.argoproj.io/secret-type": "cluster",
                "app.kubernetes.io/managed-by": "fairlead",
                "service.sh/export": "argocd",
                "service.sh/export-cluster": "berlin",
                "env": "prod",
            },
            "annotations": {
                "service.sh/access-key": "export-berlin-x",
                "service.sh/access-key-expires": "2026-02-01T00:00:00Z",
                "service.sh/installation": "u-install",
            },
        },
    }


def test_a_project_of_argo_cd_is_in_the_secret_and_a_public_ca_is_not() -> None:
    data = decode(build_argocd_secret(CLUSTER, Gateways("https://f.example.com"), KEY, "argocd", "shop"))
    assert data["project"] == "shop"
    assert json.loads(data["config"])["tlsClientConfig"] == {"insecure": False}


def test_a_profile_leads_to_the_gateway_and_contains_no_key() -> None:
    profile = build_profile(CLUSTER, GATEWAYS, "fleet")
    assert profile["apiVersion"] == "multicluster.x-k8s.io/v1alpha1"
    assert profile["metadata"]["labels"]["x-k8s.io/cluster-manager"] == "fairlead"
    assert profile["spec"] == {"displayName": "Berlin", "clusterManager": {"name": "fairlead"}}
    assert profile["status"] == {
        "accessProviders": [
            {
                "name": "fairlead",
                "cluster": {
                    "server": "https://fairlead.example.com/kubernetes/cluster/berlin",
                    "certificate-authority-data": base64.b64encode(AUTHORITY.encode()).decode(),
                    "extensions": [
                        {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "berlin"}}
                    ],
                },
            }
        ],
        "conditions": [
            {
                **{"type": "ControlPlaneHealthy", "status": "True", "reason": "Healthy", "message": "ok"},
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "version": {"kubernetes": "v1.34.1"},
    }
    assert "fairlead_" not in json.dumps(profile)


def test_a_cluster_that_was_never_probed_has_no_condition() -> None:
    profile = build_profile({"metadata": {"name": "new", "uid": "u"}, "spec": {}}, GATEWAYS, "fleet")
    assert set(profile["status"]) == {"accessProviders"}


def test_names_that_are_too_long_stay_unique_and_valid() -> None:
    one, other = "a" * 252 + "b", "a" * 252 + "c"
    assert len(secret_name(one)) == 253
    assert secret_name(one) != secret_name(other)
    labels = [build_key(each, ExportFormat.ARGOCD, {})["metadata"]["labels"] for each in (one, other)]
    assert labels[0] != labels[1]
    assert all(len(value) <= 63 for each in labels for value in each.values())


def test_a_key_does_not_show_its_value() -> None:
    assert "fairlead_value" not in repr(KEY)
