"""Values for the Helm chart in deploy/chart, and the script that renders it."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
NOT_OF_KUBERNETES = ("PrometheusRule", "ServiceMonitor", "TLSRoute")
CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
REPLICATED = {
    "store": {"type": "postgres"},
    "replicas": 3,
    "secrets": {"existingSecret": "fairlead-secrets"},
    "tls": {"existingSecret": "fairlead-tls", "ca": True},
}
EVERYTHING = {
    **REPLICATED,
    "publicURL": "https://fairlead.example.com",
    "workers": 4,
    "settings": {"history_seconds": 7200, "cluster_networks": ["10.0.0.0/8"]},
    "service": {"type": "LoadBalancer", "port": 8443, "annotations": {"example.com/zone": "a"}},
    "ingress": {"enabled": True, "className": "nginx", "host": "fairlead.example.com", "annotations": {"a": "b"}},
    "gateway": {"enabled": True, "host": "fairlead.example.com", "parentRefs": [{"name": "public"}]},
    "localCluster": {"enabled": True, "name": "home", "use": ["gateways", "spaces", "virtual-clusters", "runners"]},
    "metrics": {
        "serviceMonitor": {"enabled": True, "existingSecret": "scrape", "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "aggregatedAPI": {
        "enabled": True,
        "caBundle": CA,
        "annotations": {"a": "b"},
        "forwardedGroups": ["system:authenticated"],
    },
    "clientCertificates": {"existingConfigMap": "user-cas"},
    "networkPolicy": {"egress": [{"ports": [{"port": 443}]}]},
    "serviceAccount": {"name": "manager", "annotations": {"a": "b"}},
    "image": {
        "repository": "registry.example.com/fairlead",
        "digest": "sha256:" + "0" * 64,
        "pullSecrets": [{"name": "pull"}],
    },
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "priorityClassName": "system-cluster-critical",
}

AGGREGATED: dict[str, Any] = {
    "aggregatedAPI": {
        "enabled": True,
        "authorization": "host",
        "annotations": {"cert-manager.io/inject-ca-from": "a/b"},
    }
}
FRONT_PROXY: dict[str, Any] = {"frontProxy": {"existingConfigMap": "proxies", "allowedNames": ["front-proxy"]}}
VARIANTS: list[dict[str, Any]] = [{}, REPLICATED, AGGREGATED, FRONT_PROXY, EVERYTHING]


def load_script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("render_manifests", ROOT / "scripts" / "render_manifests.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


SCRIPT = load_script()
