"""One probe of a connected cluster: reachability, readiness and identity. Used by `clusters.py`.

First `/version`, which every Kubernetes API server allows without special permissions: a cluster that answers it is
connected. Then `/readyz` and, now and then, details that change seldom, each with its own timeout. A server without
namespaces, nodes or access reviews, or without the permission to read them, is connected all the same. Response bodies
are never quoted in messages.

SelfSubjectAccessReviews tell whether the stored credential may impersonate. Requests through gateways use it and
impersonate their user, so it needs the permission for users, groups and uids: without that, a connected cluster is
unusable. The extra value is sent only when a user impersonates another one. Kubernetes authorizes impersonation headers
as these resources: `users` and `groups` of the core group, `uids` and `userextras` of `authentication.k8s.io`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from fairlead.controllers.clusters.rights import REVIEWS_PATH, Right
from fairlead.controllers.clusters.status import ClusterDetails, Probe, ProbeFailure, ProbeResult
from fairlead.core.objects import Object, get_path
from fairlead.core.user import IMPERSONATOR_EXTRA_KEY
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import AddressBlocked, ProtocolError, TimedOut, TlsError, UpstreamError
from fairlead.upstream.kube_client import decode_object
from fairlead.upstream.upstream import Request, Upstream

AUTHENTICATION = "authentication.k8s.io"
ROLE_COMMAND = "fairlead cluster role"
"""The command that prints a ClusterRole for the credential."""
OPTIONAL_SEVERITY = "Warning"


REQUIRED_RIGHTS = (
    Right("impersonate", "users"),
    Right("impersonate", "groups"),
    Right("impersonate", "uids", AUTHENTICATION),
)
EXTRA_RIGHT = Right("impersonate", "userextras", AUTHENTICATION, IMPERSONATOR_EXTRA_KEY)

SendReview = Callable[[Object], Awaitable[tuple[int, object]]]
"""Sends a review. Returns the status and the body of the response."""


@dataclass(frozen=True, slots=True)
class RightsReview:
    """`missing`: a message about missing required permissions; empty if there are none, or if that is unknown."""

    probes: tuple[Probe, ...] = ()
    missing: str = ""


async def review_rights(send: SendReview) -> RightsReview:
    """If the cluster does not serve this API, nothing is known and nothing is reported as missing."""
    missing: list[Right] = []
    for right in REQUIRED_RIGHTS:
        allowed = await _is_allowed(send, right)
        if allowed is None:
            return RightsReview()
        if not allowed:
            missing.append(right)
    if missing:
        message = _describe_missing(missing)
        return RightsReview((Probe("impersonation", False, message),), message)
    required = Probe("impersonation", True, "the credential may impersonate users, groups and uids")
    return RightsReview((required, _extra_probe(await _is_allowed(send, EXTRA_RIGHT))))


async def _is_allowed(send: SendReview, right: Right) -> bool | None:
    status, body = await send(right.review())
    allowed = get_path(body, "status.allowed")
    return allowed if status in (200, 201) and isinstance(allowed, bool) else None


def _describe_missing(missing: Sequence[Right]) -> str:
    return (
        f"the stored credential may not impersonate {', '.join(map(str, missing))}, so the cluster rejects requests "
        f"through gateways; grant that for all names: `{ROLE_COMMAND} gateways` prints a suitable role"
    )


def _extra_probe(allowed: bool | None) -> Probe:
    if allowed is False:
        message = (
            f"the stored credential may not impersonate {EXTRA_RIGHT}, so the cluster rejects `kubectl --as` through "
            f"gateways; `{ROLE_COMMAND} gateways` prints a suitable role"
        )
        return Probe("impersonation-extra", False, message, OPTIONAL_SEVERITY)
    return Probe("impersonation-extra", True, "`kubectl --as` works through gateways")


PROBE_TIMEOUT = 4.0
OWN_SERVER = "OwnServer"
OWN_SERVER_MESSAGE = "the cluster is this server itself; correct the address in the kubeconfig"
MAX_RESPONSE_BYTES = 1024 * 1024

_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,64}")
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class HttpResult:
    status: int
    body: Any
    """The decoded object; None if it is not one."""


async def send_request(upstream: Upstream, method: str, target: str, body: Object | None = None) -> HttpResult:
    """One request without impersonation. Raises UpstreamError. The caller sets the timeout."""
    headers = [("accept", "application/json")]
    if body is not None:
        headers.append(("content-type", "application/json"))
    content = orjson.dumps(body) if body is not None else b""
    response = await upstream.send(Request(method, target, headers, content))
    try:
        text = await response.read(MAX_RESPONSE_BYTES)
    finally:
        await response.close()
    try:
        return HttpResult(response.status, await decode_object(text))
    except ProtocolError:
        return HttpResult(response.status, None)


@dataclass(frozen=True, slots=True)
class OwnServer:
    """How this server is recognised if it is connected to itself, such as by the address of a load balancer: by the
    uid of its own namespace."""

    namespace: str
    uid: str


class _IsOwnServer(Exception):
    pass


async def probe_cluster(upstream: Upstream, known: ClusterDetails | None, own: OwnServer | None = None) -> ProbeResult:
    """`known`: details of an earlier probe to reuse; None: fetch them."""
    probes: tuple[Probe, ...] = (Probe("config", True, "the secret has a usable kubeconfig"),)
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        response = await _with_timeout(send_request(upstream, "GET", "/version"))
    except UpstreamError as error:
        return unreachable_result(error, (*probes, Probe("connection", False, error.message)))
    latency = loop.time() - started
    probes += (Probe("connection", True, "the cluster is reachable, and its certificate is trusted"),)
    version = get_path(response.body, "gitVersion")
    if response.status != 200 or not isinstance(version, str) or not _VERSION.fullmatch(version):
        failure = _version_failure(response.status)
        name = "credential" if response.status == 401 else "version"
        return ProbeResult((*probes, Probe(name, False, failure.message)), failure, latency=latency)
    probes += (Probe("version", True, f"the cluster runs Kubernetes {version}"),)
    try:
        return replace(await _finish_probe(upstream, known, own, probes, version), latency=latency)
    except _IsOwnServer:
        failure = ProbeFailure(OWN_SERVER, OWN_SERVER_MESSAGE, True)
        return ProbeResult((*probes, Probe("identity", False, failure.message)), failure, latency=latency)


def unreachable_result(error: UpstreamError, probes: tuple[Probe, ...]) -> ProbeResult:
    is_permanent = isinstance(error, AddressBlocked | TlsError | NotConnected)
    return ProbeResult(probes, ProbeFailure(error.reason, error.message, is_permanent))


def _version_failure(status: int) -> ProbeFailure:
    if status == 401:
        message = "the cluster rejects the credential of the kubeconfig; store a valid one in the secret"
        return ProbeFailure("Unauthorized", message, True)
    if status == 403:
        message = "the credential of the kubeconfig may not read /version; bind it to a role that may"
        return ProbeFailure("Forbidden", message, True)
    if status >= 500 or status == 429:
        return ProbeFailure("Unhealthy", f"the cluster returns HTTP status {status}; check its API server", False)
    message = f"the server is not a Kubernetes API server (HTTP status {status} for /version); correct its address"
    return ProbeFailure("NotKubernetes", message, True)


async def _finish_probe(
    upstream: Upstream,
    known: ClusterDetails | None,
    own: OwnServer | None,
    probes: tuple[Probe, ...],
    version: str,
) -> ProbeResult:
    """Readiness and details. If these requests get no response, the result is incomplete."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            health = _readiness_probe((await send_request(upstream, "GET", "/readyz")).status)
        async with asyncio.timeout(PROBE_TIMEOUT):
            details = known or await _fetch_details(upstream, own)
    except (UpstreamError, TimeoutError):
        message = "the cluster answers /version, but other requests time out; check its API server"
        return ProbeResult(
            probes=(*probes, Probe("readyz", False, message)),
            failure=None,
            not_ready=message,
            version=version,
            details=known or ClusterDetails(),
            is_incomplete=True,
        )
    return ProbeResult((*probes, health), None, "" if health.ok else health.message, version, details)


def _readiness_probe(status: int) -> Probe:
    if status == 200:
        return Probe("readyz", True, "the cluster reports that it is ready")
    if status in (401, 403, 404):
        return Probe("readyz", True, "the cluster does not report its readiness, and is assumed to be ready")
    message = f"the cluster reports that it is not ready (HTTP status {status} for /readyz); check its API server"
    return Probe("readyz", False, message)


async def _fetch_details(upstream: Upstream, own: OwnServer | None) -> ClusterDetails:
    """Raises _IsOwnServer."""
    namespace = await send_request(upstream, "GET", "/api/v1/namespaces/kube-system")
    if namespace.status == 404 and own is not None:  # a cluster of Kubernetes has this namespace
        found = await send_request(upstream, "GET", f"/api/v1/namespaces/{own.namespace}")
        if get_path(found.body, "metadata.uid") == own.uid:
            raise _IsOwnServer
    nodes = await send_request(upstream, "GET", "/api/v1/nodes?limit=1")

    async def review(body: Object) -> tuple[int, object]:
        answer = await send_request(upstream, "POST", REVIEWS_PATH, body)
        return answer.status, answer.body

    rights = await review_rights(review)
    uid = get_path(namespace.body, "metadata.uid")
    count = _count_nodes(nodes)
    uid = uid if namespace.status == 200 and isinstance(uid, str) and _UID.fullmatch(uid) else ""
    probes = (_identity_probe(namespace.status, uid), _nodes_probe(nodes.status, count))
    return ClusterDetails((*(each for each in probes if each), *rights.probes), uid, count, rights.missing)


def _identity_probe(status: int, uid: str) -> Probe | None:
    if uid:
        return Probe("kube-system", True, "the uid of its namespace kube-system identifies the cluster")
    if status == 403:
        message = "the credential may not get the namespace kube-system, so a duplicate connection cannot be detected"
        return Probe("kube-system", True, message)
    return None


def _nodes_probe(status: int, count: int | None) -> Probe | None:
    if count is not None:
        return Probe("nodes", True, f"{count} node" if count == 1 else f"{count} nodes")
    return Probe("nodes", True, "the credential may not list nodes, so they are not counted") if status == 403 else None


def _count_nodes(response: HttpResult) -> int | None:
    items = get_path(response.body, "items")
    more = get_path(response.body, "metadata.remainingItemCount")
    if response.status != 200 or not isinstance(items, list):
        return None
    return len(items) + (more if isinstance(more, int) and more > 0 else 0)


async def _with_timeout(request: Any) -> HttpResult:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            answer: HttpResult = await request
            return answer
    except TimeoutError:
        message = (
            f"the cluster did not answer within {PROBE_TIMEOUT:.0f} seconds; check that it runs and is reachable "
            "from here"
        )
        raise TimedOut(message) from None
