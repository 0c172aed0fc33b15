"""The contexts of the runner's kubeconfig: which clusters its workspaces run in, and with which credential.

The file is the runner's own. It names the gateway of a Fairlead server with a scoped access key, or a cluster itself.
It is read again when it changes, or a file that it refers to does, so that a rotated key works without a restart. In a
Pod, the token of a service account is such a file: the cluster renews it long before it expires.

`diagnose` says what the file lacks, for `fairlead runner doctor`.
"""

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead import __version__
from fairlead.client import ClientError
from fairlead.client.kubeconfig import find_entry, parse_kubeconfig
from fairlead.client.kubeconfig_export import export_context
from fairlead.core.files import FileProblem, read_file
from fairlead.core.machine.findings import Finding
from fairlead.core.objects import Object, get_path
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.kubernetes.cluster import Cluster
from fairlead.upstream import kubeconfig as cluster_kubeconfig
from fairlead.upstream.access import Limits
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.errors import TlsError, Unreachable, UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError
from fairlead.upstream.upstream import Upstream, dialled_upstream

FileVersion = tuple[int, int, int]
"""Time of change, size and inode of a file."""
_FILE_FIELDS = ("tokenFile", "certificate-authority", "client-certificate", "client-key")
RUNNER_AGENT = f"fairlead/{__version__} (runner)"
LIMITS = Limits(max_requests=64, max_websockets=512, max_queued=256, connect_seconds=10, response_header_seconds=30)


@dataclass(slots=True)
class Contexts:
    path: Path | None
    call_seconds: float
    _version: FileVersion | None = None
    _config: Object = field(default_factory=dict)
    _clusters: dict[str, Cluster] = field(default_factory=dict)
    _retired: list[Cluster] = field(default_factory=list)
    _files: dict[Path, FileVersion | None] = field(default_factory=dict)
    """The files that the kubeconfig refers to, as they were when it was read."""

    def list_names(self) -> list[str]:
        return [str(each.get("name")) for each in self._load().get("contexts") or ()]

    def resolve_name(self, name: str) -> str:
        """The name of a context; for an empty one, that of the current context."""
        config = self._load()
        chosen = name or str(config.get("current-context") or "")
        if find_entry(config, "contexts", "context", chosen) is None:
            problem = f"has no context {chosen!r}" if chosen else "has no current context"
            raise _unusable(f"{self.path}: {problem}; it has {', '.join(self.list_names()) or 'none'}")
        return chosen

    def find_current(self) -> str:
        """The name of the current context; empty if there is none."""
        return str(self._load().get("current-context") or "")

    def find_namespace(self, name: str) -> str:
        """The namespace of a context; empty if it names none."""
        context = find_entry(self._load(), "contexts", "context", name)
        return str((context or {}).get("namespace") or "") if isinstance(context, dict) else ""

    def open(self, name: str) -> Cluster:
        """The cluster of a context, with its connections. Raises EngineError."""
        name = self.resolve_name(name)
        if name not in self._clusters:
            self._clusters[name] = Cluster(self._connect(name), self.call_seconds)
        return self._clusters[name]

    async def close(self) -> None:
        for cluster in (*self._clusters.values(), *self._retired):
            await cluster.upstream.close()
        self._clusters.clear()
        self._retired.clear()

    def _connect(self, name: str) -> Upstream:
        assert self.path is not None
        try:
            content = export_context([self.path], name).content
            endpoint = cluster_kubeconfig.parse_kubeconfig(content)
            return dialled_upstream(endpoint, DirectDialer(endpoint, resolve), LIMITS, user_agent=RUNNER_AGENT)
        except (ClientError, FileProblem, TlsError, cluster_kubeconfig.InvalidKubeconfig) as error:
            raise _unusable(f"{self.path}: the context {name!r} cannot be used: {error}") from None

    def _load(self) -> Object:
        """The content of the file. When it has changed, new connections are made; sessions keep theirs."""
        if self.path is None:
            raise _unusable("the engine `kubernetes` needs a kubeconfig; start the runner with --kubeconfig")
        try:
            version = _file_version(self.path.stat())
            if version != self._version or any(_find_version(path) != known for path, known in self._files.items()):
                self._config = parse_kubeconfig(self.path, read_file(self.path))
                self._version = version
                self._files = {path: _find_version(path) for path in _referenced_files(self.path, self._config)}
                self._retired += self._clusters.values()
                self._clusters.clear()
        except (OSError, FileProblem) as error:
            raise _unusable(f"{self.path}: the kubeconfig cannot be read: {error}") from None
        return self._config


def _file_version(stat: os.stat_result) -> FileVersion:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _find_version(path: Path) -> FileVersion | None:
    """None if the file cannot be read: its use fails then, with an error that names it."""
    try:
        return _file_version(path.stat())
    except OSError:
        return None


def _referenced_files(kubeconfig: Path, config: Object) -> Iterator[Path]:
    """The files with credentials and certificates that the sections of a kubeconfig name."""
    for section, kind in (("clusters", "cluster"), ("users", "user")):
        for each in config.get(section) or ():
            paths = (get_path(each, f"{kind}.{name}") for name in _FILE_FIELDS)
            yield from (kubeconfig.parent / str(path) for path in paths if path)


async def resolve(host: str, port: int) -> str:
    """The first address of a host. The operator chose it, so there is no policy."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable("the cluster's host name does not resolve; check the host name and DNS") from None
    return str(found[0][4][0])


def _unusable(message: str) -> EngineError:
    return EngineError(Reason.ENGINE_UNAVAILABLE, message)


# --- diagnosis --------------------------------------------------------------------------------------------------------

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NEEDED: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("", "pods", ("get", "list", "create", "delete")),
    ("", "pods/exec", ("get", "create")),
    ("", "pods/portforward", ("get", "create")),
    ("", "pods/log", ("get",)),
    ("", "persistentvolumeclaims", ("get", "list", "create", "delete")),
    ("", "secrets", ("get", "create", "patch", "delete")),
    ("networking.k8s.io", "networkpolicies", ("get", "create", "delete")),
)
"""API group, resource and verbs in the namespace. Events are read if that is allowed."""
REMEDY = "grant a Role with these verbs in that namespace; docs/runner-kubernetes.md has it"


async def diagnose(contexts: Contexts) -> Sequence[Finding]:
    try:
        names = contexts.list_names()
    except EngineError as error:
        return [Finding("kubeconfig", error.message, "fairlead runner start --engine kubernetes --kubeconfig FILE")]
    if not names:
        return [Finding("kubeconfig", f"{contexts.path}: it has no context", "kubectl config view --raw --flatten")]
    return [Finding("kubeconfig"), *[await _check_context(contexts, name) for name in names]]


async def _check_context(contexts: Contexts, name: str) -> Finding:
    subject = f"cluster {name}"
    try:
        cluster = contexts.open(name)
        namespace = contexts.find_namespace(name)
        missing = await _find_missing(cluster, namespace) if namespace else []
        if not namespace:
            await KubeClient(cluster.upstream).get("/version")
    except EngineError as error:
        return Finding(subject, error.message, "correct the kubeconfig")
    except (RemoteApiError, UpstreamError) as error:
        return Finding(subject, str(error), "check the server, and the token, in the kubeconfig")
    if not namespace:
        problem = "the context names no namespace, so its permissions cannot be checked"
        return Finding(subject, problem, f"kubectl config set-context {name} --namespace=...", is_fatal=False)
    problem = f"the credential lacks {', '.join(missing)} in namespace {namespace}" if missing else ""
    return Finding(subject, problem, REMEDY)


async def _find_missing(cluster: Cluster, namespace: str) -> list[str]:
    client, missing = KubeClient(cluster.upstream), []
    for group, resource, verbs in NEEDED:
        plural, _, subresource = resource.partition("/")
        for verb in verbs:
            attributes = {"group": group, "resource": plural, "verb": verb, "namespace": namespace}
            attributes |= {"subresource": subresource} if subresource else {}
            review: Object = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            if not get_path(await client.create(REVIEWS, review), "status.allowed"):
                missing.append(f"{verb} {resource}")
    return missing
