"""A chart to be deployed as the template of a virtual cluster has it, and how `helm` is told about it. Pure.

Whoever writes a template chooses the chart, so nothing in it may be taken for an option or a file of this machine.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from fairlead.controllers.far_names import cut
from fairlead.controllers.far_trouble import ERROR, Trouble
from fairlead.core.objects import Object, dig
from fairlead.upstream.access import Access

RELEASE_LENGTH = 53
"""How long helm lets names of releases be."""
_OCI, _HTTPS = "oci", "https"
_REPOSITORY = "repository"

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_chart_version = re.compile(r"[A-Za-z0-9v^~>=<*][A-Za-z0-9.+^~>=<* -]{0,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    repo: str
    version: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the repository."""
        parts = urlsplit(self.repo)
        return parts.hostname or "", parts.port or 443

    @property
    def is_oci(self) -> bool:
        return urlsplit(self.repo).scheme == _OCI


@dataclass(frozen=True, slots=True)
class Release:
    """A chart under a name in a namespace. `confined_to` is the identity that it is deployed with, if not with all
    rights that the cluster's stored credential has."""

    name: str
    namespace: str
    chart: Chart
    values: str
    confined_to: str = ""

    @property
    def hash(self) -> str:
        """Tells whether there is something to deploy anew."""
        chart = self.chart
        parts = [self.name, self.namespace, chart.name, chart.repo, chart.version, self.values, self.confined_to]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def release_name(name: str) -> str:
    """Names of instances may have dots, which what a chart makes of them often may not."""
    return cut(name.replace(".", "-"), RELEASE_LENGTH)


def chart_of(rendered: Object) -> Chart | None:
    """The chart of a rendered template, or None if it names none. Raises Trouble."""
    asked = dig(rendered, "helmRelease.chart") or {}
    texts = {part: str(asked.get(part) or "") for part in ("name", "repo", "version", "username", "password")}
    if not texts["name"]:
        return None
    chart = Chart(**texts)
    if not _name.fullmatch(chart.name):
        raise _bad("helmRelease.chart.name must be the plain name of a chart in its repository")
    if chart.version and not _chart_version.fullmatch(chart.version):
        raise _bad("helmRelease.chart.version must be a version such as 1.2.3")
    if not _is_repository(chart.repo):
        raise _bad(
            "helmRelease.chart.repo must be the https:// or oci:// address of a repository, without a user in it"
        )
    return chart


def _is_repository(repo: str) -> bool:
    try:
        parts = urlsplit(repo)
        known = parts.scheme in (_HTTPS, _OCI) and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return known and "@" not in parts.netloc and not parts.query and not parts.fragment and repo.isprintable()


def _bad(why: str) -> Trouble:
    return Trouble("BadChart", f"{why}; have the template mended", ERROR)


def reference(release: Release) -> Sequence[str]:
    """The arguments that say which chart."""
    chart = release.chart
    if chart.is_oci:
        return (f"{chart.repo.rstrip('/')}/{chart.name}",)
    if chart.password:
        return (f"{_REPOSITORY}/{chart.name}",)
    return chart.name, "--repo", chart.repo


def login(release: Release) -> Sequence[str]:
    """The arguments of the run that makes a repository with a password known; it is read from standard input."""
    chart = release.chart
    if not chart.password:
        return ()
    credential = ("--username", chart.username, "--password-stdin")
    if chart.is_oci:
        return "registry", "login", urlsplit(chart.repo).netloc, *credential
    return "repo", "add", _REPOSITORY, chart.repo, *credential


def kubeconfig(access: Access, namespace: str) -> Object:
    """The file that helm finds the cluster with."""
    host = f"[{access.host}]" if ":" in access.host else access.host
    cluster: Object = {
        "server": f"https://{host}:{access.port}{access.path}",
        "tls-server-name": access.server_name,
    }
    if access.authority:
        cluster["certificate-authority-data"] = _encoded(access.authority)
    user: Object = {"token": access.token} if access.token else {}
    if access.certificate:
        user["client-certificate-data"] = _encoded(access.certificate)
        user["client-key-data"] = _encoded(access.key)
    context = {"cluster": "cluster", "user": "user", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": context}],
        "current-context": "context",
    }


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
