"""Stores revisions of releases in a fake cluster as Helm does: each in a Secret, with its state in a label.

A new revision that is deployed supersedes the deployed one. One that has failed, or is pending, leaves it as it is.
"""

import gzip
import json
from base64 import b64encode
from typing import Any

from fairlead.controllers.helm.chart import Release
from fairlead.core import yaml
from tests.fake_cluster.kube import FakeKube

SECRETS = "/api/v1/namespaces/{}/secrets"


def find_revisions(kube: FakeKube, release: Release) -> list[str]:
    """The paths of the Secrets of a release."""
    prefix = f"{SECRETS.format(release.namespace)}/sh.helm.release.v1.{release.name}.v"
    return [path for path in kube.objects if path.startswith(prefix)]


def store_release(
    kube: FakeKube, release: Release, state: str = "deployed", created_at: str = "", **changes: Any
) -> None:
    """Stores the next revision of a release."""
    former = find_revisions(kube, release)
    for path in former:
        labels = kube.objects[path]["metadata"]["labels"]
        if state == "deployed" and labels["status"] == "deployed":
            labels["status"] = "superseded"
    numbers = [int(path.rpartition(".v")[2]) for path in former]
    revision = max(numbers, default=0) + 1
    content = {
        "chart": {"metadata": {"name": release.chart.name, "version": release.chart.version, "appVersion": "9.9"}},
        "config": yaml.decode(release.values.encode())[0],
        "info": {"notes": f"Deployed with {release.values}"},
        "manifest": "",
        **changes,
    }
    encoded = b64encode(b64encode(gzip.compress(json.dumps(content).encode()))).decode()
    labels = {"owner": "helm", "name": release.name, "status": state, "version": str(revision)}
    if created_at:
        labels["createdAt"] = created_at
    path = f"{SECRETS.format(release.namespace)}/sh.helm.release.v1.{release.name}.v{revision}"
    kube.add_object(path, metadata={"labels": labels}, data={"release": encoded})


def remove_release(kube: FakeKube, release: Release) -> None:
    for path in find_revisions(kube, release):
        del kube.objects[path]
