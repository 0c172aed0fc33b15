"""The chart and release of a virtual cluster or App, and the files for helm. Pure.

The chart comes from a template or App, whose author is not trusted. So all values are validated here. Helm gets none of
them as an argument but the name of the release: the chart is downloaded before (`fetch.py`).
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from fairlead.controllers.helm.versions import parse_range
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.objects import Object, get_path
from fairlead.domain.chart_secrets import PASSWORD_REF, USERNAME_REF, ChartSecretReference, find_chart_references
from fairlead.domain.deploy_timeouts import TIMEOUT_RULE, parse_timeout
from fairlead.domain.release_annotations import ReleaseAnnotations
from fairlead.registry import limits
from fairlead.upstream.access import ClusterEndpoint

OCI, _HTTPS = "oci", "https"
DEFAULT_TIMEOUT_SECONDS = 300

_MAX_URL_LENGTH, _MAX_USERNAME_LENGTH = 2048, 256
_name_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_repository_path_pattern = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*/?", re.ASCII)
_version_pattern = re.compile(r"[A-Za-z0-9v^~>=<*][A-Za-z0-9.+^~>=<* -]{0,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    repo: str
    version: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    username_ref: ChartSecretReference | None = None
    password_ref: ChartSecretReference | None = None
    """Where username and password come from instead, before it is deployed (`controllers/apps/chart_logins.py`)."""
    manifests: str = field(default="", repr=False)
    """Objects to deploy instead of a chart of a repository. Helm deploys them as a chart without templates."""

    @property
    def is_oci(self) -> bool:
        return urlsplit(self.repo).scheme == OCI


@dataclass(frozen=True, slots=True)
class Release:
    """A chart under a name in a namespace. Helm impersonates `impersonate_user`; if that is empty, it uses the stored
    credential of the cluster with all its permissions."""

    name: str
    namespace: str
    chart: Chart
    values: str
    impersonate_user: str = ""
    waits: bool = False
    """Whether helm waits until the deployed objects are ready."""
    timeout: int = DEFAULT_TIMEOUT_SECONDS
    """Seconds that helm may take. Not a part of the hash: it does not change what is deployed."""
    annotations: ReleaseAnnotations = ()
    """To set on all objects of the release (`release_annotations.py`)."""

    @property
    def hash(self) -> str:
        """Changes when the release has to be deployed again."""
        chart = self.chart
        parts = [self.name, self.namespace, chart.name, chart.repo, chart.version, self.values, self.impersonate_user]
        if chart.manifests:
            parts.append(chart.manifests)
        content = [parts, self.annotations] if self.annotations else parts
        return hashlib.sha256(orjson.dumps(content)).hexdigest()[:32]

    def added_annotations(self, wanted: Object) -> dict[str, str]:
        """Those that an object of the release gets: an annotation that the chart itself sets stays as it is."""
        own = get_path(wanted, "metadata.annotations")
        return {key: value for key, value in self.annotations if not isinstance(own, dict) or key not in own}


def parse_chart(rendered: Object) -> Chart | None:
    """The chart of a rendered template, or None if it names none. Raises InstanceError."""
    requested = get_path(rendered, "helmRelease.chart") or {}
    if not requested.get("name"):
        return None
    chart = Chart(
        name=str(requested["name"]),
        repo=str(requested.get("repo") or ""),
        version=str(requested.get("version") or ""),
        username=str(requested.get("username") or ""),
        password=str(requested.get("password") or ""),
    )
    return _check_chart(chart, "helmRelease.chart", "repo", "fix the template")


def parse_repository_chart(requested: Object, path: str, advice: str) -> Chart:
    """The chart of an App or of the `charts` of a template, with `repoURL`. `path` is its field, for messages. Raises
    InstanceError."""
    if requested.get("insecureSkipTlsVerify"):
        raise _bad_chart(f"{path}.insecureSkipTlsVerify is not supported by this server", advice)
    references = {each.field: each for each in find_chart_references(requested, path)}
    for each in references.values():
        if not each.name or not each.key:
            raise _bad_chart(f"{each.path}.projectSecretRef must have the name of a project secret and a key", advice)
    chart = Chart(
        name=str(requested.get("name") or ""),
        repo=str(requested.get("repoURL") or ""),
        version=str(requested.get("version") or ""),
        username=str(requested.get("username") or ""),
        password=str(requested.get("password") or ""),
        username_ref=references.get(USERNAME_REF),
        password_ref=references.get(PASSWORD_REF),
    )
    return _check_chart(chart, path, "repoURL", advice)


def check_login(chart: Chart) -> Chart:
    """Checks the username and password that came from project secrets. Raises InstanceError."""
    texts = {chart.username_ref: chart.username, chart.password_ref: chart.password}
    for reference, text in texts.items():
        if reference is not None and (len(text) > limits.CREDENTIAL or not text.isprintable()):
            reason = (
                f'the key "{reference.key}" of the project secret "{reference.name}" must be one line of at most '
                f"{limits.CREDENTIAL} characters, without a newline at its end"
            )
            raise _bad_chart(reason, "correct the secret")
    return chart


def _check_chart(chart: Chart, path: str, repo_field: str, advice: str) -> Chart:
    if not _name_pattern.fullmatch(chart.name):
        raise _bad_chart(f"{path}.name must be the name of a chart in its repository", advice)
    if chart.version and (not _version_pattern.fullmatch(chart.version) or parse_range(chart.version) is None):
        raise _bad_chart(f"{path}.version must be a version such as 1.2.3, or a range such as ^1.2", advice)
    if len(chart.username) > _MAX_USERNAME_LENGTH or not chart.username.isprintable():
        raise _bad_chart(f"{path}.username must be one line of at most {_MAX_USERNAME_LENGTH} characters", advice)
    has_password = bool(chart.password) or chart.password_ref is not None
    has_username = bool(chart.username) or chart.username_ref is not None
    if has_password and not has_username and not chart.is_oci:
        raise _bad_chart(f"{path}.username must be set together with a password for an https:// repository", advice)
    if not _is_valid_repository(chart.repo):
        message = f"{path}.{repo_field} must be the https:// or oci:// URL of a repository, without a user in it"
        raise _bad_chart(message, advice)
    return chart


def _is_valid_repository(repo: str) -> bool:
    if len(repo) > _MAX_URL_LENGTH or not repo.isprintable() or " " in repo or "\\" in repo:
        return False
    try:
        parts = urlsplit(repo)
        known = parts.scheme in (_HTTPS, OCI) and bool(parts.hostname) and (parts.port or 1) > 0
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
        url = urlsplit(repo)
        base = urlsplit(prefix)
        same = (url.scheme, url.hostname, url.port or 443) == (base.scheme, base.hostname, base.port or 443)
    except ValueError:
        return False
    return same and f"{url.path.rstrip('/')}/".startswith(f"{base.path.rstrip('/')}/")


def _bad_chart(reason: str, advice: str) -> InstanceError:
    return InstanceError("InvalidChart", f"{reason}; {advice}", ERROR)


def check_timeout(text: str, path: str, advice: str) -> int:
    """The seconds of a timeout; empty stands for the default one. Raises InstanceError."""
    seconds = parse_timeout(text) if text else DEFAULT_TIMEOUT_SECONDS
    if seconds is None:
        raise _bad_chart(f"{path}.timeout {TIMEOUT_RULE}", advice)
    return seconds


def manifest_chart_files(release: Release) -> Mapping[str, str]:
    """The files of a chart that deploys manifests as they are: nothing in them is a template of Helm."""
    return {
        "Chart.yaml": f"apiVersion: v2\nname: {release.name}\nversion: 0.1.0\n",
        "manifests.yaml": release.chart.manifests,
        "templates/manifests.yaml": '{{ .Files.Get "manifests.yaml" }}\n',
    }


def build_kubeconfig(endpoint: ClusterEndpoint, namespace: str) -> Object:
    """The kubeconfig for helm, with an endpoint of `upstream/local_gateway.py`."""
    cluster = {
        "server": f"https://{endpoint.host}:{endpoint.port}",
        "tls-server-name": endpoint.tls_server_name,
        "certificate-authority-data": b64encode(endpoint.ca_data.encode()).decode(),
    }
    user = {"token": endpoint.token}
    context = {"cluster": "cluster", "user": "user", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "context", "context": context}],
        "current-context": "context",
    }
