"""Renders the chart into deploy/manifests/, for installations without Helm, and writes what the charts have of others:
the alerts, and the roles of agents that dial out. `make manifests`.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import yaml
from helm_python.chart import Chart

from fairlead.cli.resources.cluster_role import AGENT_PARTS, DEFAULT_CLUSTER_ROLES, build_objects

ROOT = Path(__file__).parent.parent
CHART, MANIFESTS = ROOT / "deploy" / "chart", ROOT / "deploy" / "manifests"
AGENT_CHART = ROOT / "deploy" / "agent-chart"
AGENT_ROLES = AGENT_CHART / "files" / "cluster-roles.yaml"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fairlead"}}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sqlite.yaml": ("one pod with a SQLite database on a volume", {}),
    "postgres.yaml": (
        "two pods that share a PostgreSQL database; create the Secrets fairlead-secrets and fairlead-tls first",
        {
            "store": {"type": "postgres"},
            "replicas": 2,
            "secrets": {"existingSecret": "fairlead-secrets"},
            "tls": {"existingSecret": "fairlead-tls", "ca": True},
        },
    ),
    "aggregated-api.yaml": (
        "one pod with a SQLite database, as an APIService; create the Secret fairlead-tls with cert-manager first",
        {
            "tls": {"existingSecret": "fairlead-tls", "ca": True},
            "aggregatedAPI": {
                "enabled": True,
                "annotations": {"cert-manager.io/inject-ca-from-secret": "fairlead/fairlead-tls"},
            },
        },
    ),
}


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of the chart, sorted by template."""
    with Chart.load(CHART) as chart:
        rendered = chart.render(values, name="fairlead", namespace="fairlead")
    texts = [text for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def manifest_text(title: str, values: dict[str, Any]) -> str:
    header = f"# Fairlead in a Kubernetes cluster: {title}.\n# Rendered from deploy/chart by `make manifests`.\n"
    return header + "---\n" + yaml.safe_dump_all([NAMESPACE, *render(values)], sort_keys=False, width=120)


def role_text() -> str:
    """The rules of each use of a cluster."""
    objects = build_objects(AGENT_PARTS, DEFAULT_CLUSTER_ROLES, "agent", "agent")
    roles = {each["metadata"]["name"].partition(":")[2]: each for each in objects if each["kind"] == "ClusterRole"}
    header = "# The rules that `fairlead cluster role` prints, by use. Written by `make manifests`.\n"
    return header + yaml.safe_dump({name: role["rules"] for name, role in roles.items()}, sort_keys=False, width=120)


def main() -> int:
    MANIFESTS.mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "deploy" / "monitoring" / "alerts.yaml", CHART / "files" / "alerts.yaml")
    AGENT_ROLES.write_text(role_text())
    for name, (title, values) in VARIANTS.items():
        (MANIFESTS / name).write_text(manifest_text(title, values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
