"""One probe of a connected cluster: reachability, readiness and identity. Used by `clusters.py`.

First `/version`, which every Kubernetes API server allows without special permissions: a cluster that answers it is
connected. Then `/readyz` and, now and then, details that change seldom, each with its own timeout. A server without
namespaces, nodes or access reviews, or without the permission to read them, is connected all the same. Response bodies
are never quoted in messages.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.controllers.clusters.credential_rights import REVIEWS, review_rights
from fairlead.controllers.clusters.status import Details, Found, Probe, Trouble
from fairlead.core.objects import Object, dig
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import Blocked, TimedOut, Untrusted, UpstreamError
from fairlead.upstream.upstream import Request, Upstream

SECONDS = 4.0
ANSWER_LIMIT = 1024 * 1024

_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,64}")
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    """The decoded JSON; None if it is not JSON."""


async def ask(upstream: Upstream, method: str, target: str, body: Object | None = None) -> Answer:
    """One request without impersonation. Raises UpstreamError. The caller sets the timeout."""
    headers = [("accept", "application/json")]
    if body is not None:
        headers.append(("content-type", "application/json"))
    content = orjson.dumps(body) if body is not None else b""
    response = await upstream.send(Request(method, target, headers, content))
    try:
        text = await response.read(ANSWER_LIMIT)
    finally:
        await response.close()
    try:
        return Answer(response.status, orjson.loads(text))
    except orjson.JSONDecodeError:
        return Answer(response.status, None)


async def look(upstream: Upstream, known: Details | None) -> Found:
    """`known`: details of an earlier probe to reuse; None: fetch them."""
    probes: tuple[Probe, ...] = (Probe("config", True, "the secret has a usable kubeconfig"),)
    try:
        response = await _timed(ask(upstream, "GET", "/version"))
    except UpstreamError as error:
        return not_reached(error, (*probes, Probe("connection", False, error.message)))
    probes += (Probe("connection", True, "the cluster is reachable, and its certificate is trusted"),)
    version = dig(response.body, "gitVersion")
    if response.status != 200 or not isinstance(version, str) or not _VERSION.fullmatch(version):
        failure = _refusal(response.status)
        name = "credential" if response.status == 401 else "version"
        return Found((*probes, Probe(name, False, failure.message)), failure)
    probes += (Probe("version", True, f"the cluster runs Kubernetes {version}"),)
    return await _rest(upstream, known, probes, version)


def not_reached(error: UpstreamError, probes: tuple[Probe, ...]) -> Found:
    lasting = isinstance(error, Blocked | Untrusted | NotConnected)
    return Found(probes, Trouble(error.reason, error.message, lasting))


def _refusal(status: int) -> Trouble:
    if status == 401:
        message = "the cluster rejects the credential of the kubeconfig; store a valid one in the secret"
        return Trouble("Unauthorized", message, True)
    if status == 403:
        message = "the credential of the kubeconfig may not read /version; bind it to a role that may"
        return Trouble("Forbidden", message, True)
    if status >= 500 or status == 429:
        return Trouble("Unhealthy", f"the cluster returns HTTP status {status}; check its API server", False)
    message = f"the server is not a Kubernetes API server (HTTP status {status} for /version); correct its address"
    return Trouble("NotKubernetes", message, True)


async def _rest(upstream: Upstream, known: Details | None, probes: tuple[Probe, ...], version: str) -> Found:
    """Readiness and details. If these requests get no response, the result is incomplete."""
    try:
        async with asyncio.timeout(SECONDS):
            health = _health((await ask(upstream, "GET", "/readyz")).status)
        async with asyncio.timeout(SECONDS):
            details = known or await _details(upstream)
    except (UpstreamError, TimeoutError):
        message = "the cluster answers /version, but other requests time out; check its API server"
        return Found((*probes, Probe("readyz", False, message)), None, message, version, known or Details(), True)
    return Found((*probes, health), None, "" if health.ok else health.message, version, details)


def _health(status: int) -> Probe:
    if status == 200:
        return Probe("readyz", True, "the cluster reports that it is ready")
    if status in (401, 403, 404):
        return Probe("readyz", True, "the cluster does not report its readiness, and is assumed to be ready")
    message = f"the cluster reports that it is not ready (HTTP status {status} for /readyz); check its API server"
    return Probe("readyz", False, message)


async def _details(upstream: Upstream) -> Details:
    namespace = await ask(upstream, "GET", "/api/v1/namespaces/kube-system")
    nodes = await ask(upstream, "GET", "/api/v1/nodes?limit=1")

    async def review(body: Object) -> tuple[int, object]:
        answer = await ask(upstream, "POST", REVIEWS, body)
        return answer.status, answer.body

    rights = await review_rights(review)
    uid, count = dig(namespace.body, "metadata.uid"), _count(nodes)
    uid = uid if namespace.status == 200 and isinstance(uid, str) and _UID.fullmatch(uid) else ""
    probes = (_identity(namespace.status, uid), _seen(nodes.status, count))
    return Details((*(each for each in probes if each), *rights.probes), uid, count, rights.missing)


def _identity(status: int, uid: str) -> Probe | None:
    if uid:
        return Probe("kube-system", True, "the uid of its namespace kube-system identifies the cluster")
    if status == 403:
        message = "the credential may not get the namespace kube-system, so a duplicate connection cannot be detected"
        return Probe("kube-system", True, message)
    return None


def _seen(status: int, count: int | None) -> Probe | None:
    if count is not None:
        return Probe("nodes", True, f"{count} node" if count == 1 else f"{count} nodes")
    return Probe("nodes", True, "the credential may not list nodes, so they are not counted") if status == 403 else None


def _count(answer: Answer) -> int | None:
    items, more = dig(answer.body, "items"), dig(answer.body, "metadata.remainingItemCount")
    if answer.status != 200 or not isinstance(items, list):
        return None
    return len(items) + (more if isinstance(more, int) and more > 0 else 0)


async def _timed(asking: Any) -> Answer:
    try:
        async with asyncio.timeout(SECONDS):
            answer: Answer = await asking
            return answer
    except TimeoutError:
        message = (
            f"the cluster did not answer within {SECONDS:.0f} seconds; check that it runs and is reachable from here"
        )
        raise TimedOut(message) from None
