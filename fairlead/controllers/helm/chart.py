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

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.controllers.instances.remote_names import truncate_with_hash
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import ClusterEndpoint

MAX_RELEASE_NAME_LENGTH = 53
"""Helm's limit for release names."""
_OCI, _HTTPS = "oci", "https"
_REPOSITORY_NAME = "repository"

_MAX_URL_LENGTH, _MAX_USERNAME_LENGTH = 2048, 256
_name_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_repository_path_pattern = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*/?", re.ASCII)
_version_pattern = re.compile(r"[A-Za-z0-9v^~>=<*][A-Za-z0-9.+^~>=<* -]{0,100}", re.ASCII)


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
    impersonate_user: str = ""

    @property
    def hash(self) -> str:
        """Changes when the release has to be deployed again."""
        chart = self.chart
        parts = [self.name, self.namespace, chart.name, chart.repo, chart.version, self.values, self.impersonate_user]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def release_name(name: str) -> str:
    """Dots are replaced: charts often derive names from it that may not contain any."""
    return truncate_with_hash(name.replace(".", "-"), MAX_RELEASE_NAME_LENGTH)


def parse_chart(rendered: Object) -> Chart | None:
    """The chart of a rendered template, or None if it names none. Raises InstanceError."""
    requested = get_path(rendered, "helmRelease.chart") or {}
    texts = {part: str(requested.get(part) or "") for part in ("name", "repo", "version", "username", "password")}
    if not texts["name"]:
        return None
    chart = Chart(**texts)
    if not _name_pattern.fullmatch(chart.name):
        raise _bad_chart("helmRelease.chart.name must be the name of a chart in its repository")
    if chart.version and not _version_pattern.fullmatch(chart.version):
        raise _bad_chart("helmRelease.chart.version must be a version such as 1.2.3")
    if len(chart.username) > _MAX_USERNAME_LENGTH or not chart.username.isprintable():
        raise _bad_chart(f"helmRelease.chart.username must be one line of at most {_MAX_USERNAME_LENGTH} characters")
    if chart.password and not chart.username and not chart.is_oci:
        raise _bad_chart("helmRelease.chart.username must be set together with a password for an https:// repository")
    if not _is_valid_repository(chart.repo):
        raise _bad_chart(
            "helmRelease.chart.repo must be the https:// or oci:// URL of a repository, without a user in it"
        )
    return chart


def _is_valid_repository(repo: str) -> bool:
    if len(repo) > _MAX_URL_LENGTH or not repo.isprintable() or " " in repo or "\\" in repo:
        return False
    try:
        parts = urlsplit(repo)
        known = parts.scheme in (_HTTPS, _OCI) and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return known and "@" not in parts.netloc and not parts.query and not parts.fragment


def is_allowed_repository(repo: str, prefixes: Sequence[str]) -> bool:
    """Whether a repository is one of the prefixes or below one, by whole path segments and without `..`."""
    return bool(_repository_path_pattern.fullmatch(urlsplit(repo).path)) and any(
        _is_below(repo, each) for each in prefixes
    )


def _is_below(repo: str, prefix: str) -> bool:
    try:
        url, base = urlsplit(repo), urlsplit(prefix)
        same = (url.scheme, url.hostname, url.port or 443) == (base.scheme, base.hostname, base.port or 443)
    except ValueError:
        return False
    return same and f"{url.path.rstrip('/')}/".startswith(f"{base.path.rstrip('/')}/")


def _bad_chart(reason: str) -> InstanceError:
    return InstanceError("InvalidChart", f"{reason}; fix the template", ERROR)


def chart_arguments(release: Release) -> tuple[Sequence[str], str]:
    """The options that select the chart, and the chart argument, which comes after all options."""
    chart = release.chart
    version = ("--version", chart.version) if chart.version else ()
    if chart.is_oci:
        return version, f"{chart.repo.rstrip('/')}/{chart.name}"
    if chart.password:
        return version, f"{_REPOSITORY_NAME}/{chart.name}"
    return ("--repo", chart.repo, *version), chart.name


def login_arguments(release: Release) -> Sequence[str]:
    """The arguments of the login to a repository with a password, which is passed on standard input."""
    chart = release.chart
    if not chart.password:
        return ()
    credential = ("--username", chart.username, "--password-stdin")
    if chart.is_oci:
        return "registry", "login", *credential, "--", urlsplit(chart.repo).netloc
    return "repo", "add", *credential, "--", _REPOSITORY_NAME, chart.repo


def build_kubeconfig(endpoint: ClusterEndpoint, namespace: str) -> Object:
    """The kubeconfig for helm."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    cluster: Object = {
        "server": f"https://{host}:{endpoint.port}{endpoint.base_path}",
        "tls-server-name": endpoint.tls_server_name,
    }
    if endpoint.ca_data:
        cluster["certificate-authority-data"] = _base64(endpoint.ca_data)
    user: Object = {"token": endpoint.token} if endpoint.token else {}
    if endpoint.client_certificate:
        user["client-certificate-data"] = _base64(endpoint.client_certificate)
        user["client-key-data"] = _base64(endpoint.client_key)
    context = {"cluster": "cluster", "user": "user", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": context}],
        "current-context": "context",
    }


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
