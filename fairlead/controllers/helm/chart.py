"""The chart and release of a virtual cluster, and the `helm` arguments for them. Pure.

The chart comes from a template, whose author is not trusted: no value may be taken for an option of helm or a local
file. So all values are validated here.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from fairlead.controllers.instances.remote_errors import ERROR, Trouble
from fairlead.controllers.instances.remote_names import cut
from fairlead.core.objects import Object, dig
from fairlead.upstream.access import Access

RELEASE_LENGTH = 53
"""Helm's limit for release names."""
_OCI, _HTTPS = "oci", "https"
_REPOSITORY = "repository"

_ADDRESS_LENGTH, _USERNAME_LENGTH = 2048, 256
_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_repository_path = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*/?", re.ASCII)
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
    """A chart under a name in a namespace. Helm impersonates `impersonate_user`; if that is empty, it uses the stored
    credential of the cluster with all its permissions."""

    name: str
    namespace: str
    chart: Chart
    values: str
    confined_to: str = ""

    @property
    def hash(self) -> str:
        """Changes when the release has to be deployed again."""
        chart = self.chart
        parts = [self.name, self.namespace, chart.name, chart.repo, chart.version, self.values, self.confined_to]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def release_name(name: str) -> str:
    """Dots are replaced: charts often derive names from it that may not contain any."""
    return cut(name.replace(".", "-"), RELEASE_LENGTH)


def chart_of(rendered: Object) -> Chart | None:
    """The chart of a rendered template, or None if it names none. Raises InstanceError."""
    requested = dig(rendered, "helmRelease.chart") or {}
    texts = {part: str(requested.get(part) or "") for part in ("name", "repo", "version", "username", "password")}
    if not texts["name"]:
        return None
    chart = Chart(**texts)
    if not _name.fullmatch(chart.name):
        raise _bad("helmRelease.chart.name must be the name of a chart in its repository")
    if chart.version and not _chart_version.fullmatch(chart.version):
        raise _bad("helmRelease.chart.version must be a version such as 1.2.3")
    if len(chart.username) > _USERNAME_LENGTH or not chart.username.isprintable():
        raise _bad(f"helmRelease.chart.username must be one line of at most {_USERNAME_LENGTH} characters")
    if chart.password and not chart.username and not chart.is_oci:
        raise _bad("helmRelease.chart.username must be set together with a password for an https:// repository")
    if not _is_repository(chart.repo):
        raise _bad("helmRelease.chart.repo must be the https:// or oci:// URL of a repository, without a user in it")
    return chart


def _is_repository(repo: str) -> bool:
    if len(repo) > _ADDRESS_LENGTH or not repo.isprintable() or " " in repo or "\\" in repo:
        return False
    try:
        parts = urlsplit(repo)
        known = parts.scheme in (_HTTPS, _OCI) and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return known and "@" not in parts.netloc and not parts.query and not parts.fragment


def is_listed(repo: str, prefixes: Sequence[str]) -> bool:
    """Whether a repository is one of the prefixes or below one, by whole path segments and without `..`."""
    return bool(_repository_path.fullmatch(urlsplit(repo).path)) and any(_is_below(repo, each) for each in prefixes)


def _is_below(repo: str, prefix: str) -> bool:
    try:
        url, base = urlsplit(repo), urlsplit(prefix)
        same = (url.scheme, url.hostname, url.port or 443) == (base.scheme, base.hostname, base.port or 443)
    except ValueError:
        return False
    return same and f"{url.path.rstrip('/')}/".startswith(f"{base.path.rstrip('/')}/")


def _bad(why: str) -> Trouble:
    return Trouble("BadChart", f"{why}; fix the template", ERROR)


def chart_arguments(release: Release) -> tuple[Sequence[str], str]:
    """The options that select the chart, and the chart argument, which comes after all options."""
    chart = release.chart
    version = ("--version", chart.version) if chart.version else ()
    if chart.is_oci:
        return version, f"{chart.repo.rstrip('/')}/{chart.name}"
    if chart.password:
        return version, f"{_REPOSITORY}/{chart.name}"
    return ("--repo", chart.repo, *version), chart.name


def login(release: Release) -> Sequence[str]:
    """The arguments of the login to a repository with a password, which is passed on standard input."""
    chart = release.chart
    if not chart.password:
        return ()
    credential = ("--username", chart.username, "--password-stdin")
    if chart.is_oci:
        return "registry", "login", *credential, "--", urlsplit(chart.repo).netloc
    return "repo", "add", *credential, "--", _REPOSITORY, chart.repo


def kubeconfig(access: Access, namespace: str) -> Object:
    """The kubeconfig for helm."""
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
