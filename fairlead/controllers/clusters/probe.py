"""One look at a connected cluster: is it there, is it well, which one is it? For the controller beside it.

First `/version`, which every Kubernetes answers to everybody: whoever answers that is connected. Then, within as many
seconds again, `/readyz` and, now and then, what changes seldom. A server that has no namespaces, nodes or reviews is
connected all the same, and so is one that does not show them. What the other side writes is never repeated.
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
    """What its JSON says; None where it is none."""


async def ask(upstream: Upstream, method: str, target: str, body: Object | None = None) -> Answer:
    """One request in our own name. Raises UpstreamError; the caller bounds the time."""
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
    """`known` are details that are still good enough; None: they are to be asked for."""
    reached: tuple[Probe, ...] = (Probe("config", True, "the secret holds a kubeconfig that can be used"),)
    try:
        answer = await _timed(ask(upstream, "GET", "/version"))
    except UpstreamError as error:
        return not_reached(error, (*reached, Probe("connection", False, error.message)))
    reached += (Probe("connection", True, "the cluster answers, and its certificate is trusted"),)
    version = dig(answer.body, "gitVersion")
    if answer.status != 200 or not isinstance(version, str) or not _VERSION.fullmatch(version):
        trouble = _refusal(answer.status)
        name = "credential" if answer.status == 401 else "version"
        return Found((*reached, Probe(name, False, trouble.message)), trouble)
    reached += (Probe("version", True, f"it runs Kubernetes {version}"),)
    return await _rest(upstream, known, reached, version)


def not_reached(error: UpstreamError, probes: tuple[Probe, ...]) -> Found:
    lasting = isinstance(error, Blocked | Untrusted | NotConnected)
    return Found(probes, Trouble(error.reason, error.message, lasting))


def _refusal(status: int) -> Trouble:
    if status == 401:
        why = "the cluster does not accept the credential of the kubeconfig; store one that works in the secret"
        return Trouble("Unauthorized", why, True)
    if status == 403:
        why = "the credential of the kubeconfig may not even read /version; bind it to a role that may"
        return Trouble("Forbidden", why, True)
    if status >= 500 or status == 429:
        return Trouble("Unhealthy", f"the cluster answers with status {status}; see how its API server is", False)
    why = f"the server does not answer as a Kubernetes API does (status {status} for /version); correct its address"
    return Trouble("NotKubernetes", why, True)


async def _rest(upstream: Upstream, known: Details | None, probes: tuple[Probe, ...], version: str) -> Found:
    """How it is, and which one it is. Where that stays without any answer, the cluster may have gone meanwhile."""
    try:
        async with asyncio.timeout(SECONDS):
            health = _health((await ask(upstream, "GET", "/readyz")).status)
        async with asyncio.timeout(SECONDS):
            details = known or await _details(upstream)
    except (UpstreamError, TimeoutError):
        why = "the cluster answers /version, but not its other questions in time; see how its API server is"
        return Found((*probes, Probe("readyz", False, why)), None, why, version, known or Details(), True)
    return Found((*probes, health), None, "" if health.ok else health.message, version, details)


def _health(status: int) -> Probe:
    if status == 200:
        return Probe("readyz", True, "it says that it is ready")
    if status in (401, 403, 404):
        return Probe("readyz", True, "it does not say whether it is ready, which is taken for yes")
    why = f"the cluster says that it is not ready (status {status} for /readyz); see how its API server is"
    return Probe("readyz", False, why)


async def _details(upstream: Upstream) -> Details:
    namespace = await ask(upstream, "GET", "/api/v1/namespaces/kube-system")
    nodes = await ask(upstream, "GET", "/api/v1/nodes?limit=1")

    async def review(body: Object) -> tuple[int, object]:
        answer = await ask(upstream, "POST", REVIEWS, body)
        return answer.status, answer.body

    rights = await review_rights(review)
    uid, count = dig(namespace.body, "metadata.uid"), _count(nodes)
    uid = uid if namespace.status == 200 and isinstance(uid, str) and _UID.fullmatch(uid) else ""
    seen = (_identity(namespace.status, uid), _seen(nodes.status, count))
    return Details((*(each for each in seen if each), *rights.probes), uid, count, rights.missing)


def _identity(status: int, uid: str) -> Probe | None:
    if uid:
        return Probe("kube-system", True, "it is told from other clusters by its namespace kube-system")
    if status == 403:
        why = "the credential may not get the namespace kube-system, so the same cluster twice would go unnoticed"
        return Probe("kube-system", True, why)
    return None


def _seen(status: int, count: int | None) -> Probe | None:
    if count is not None:
        return Probe("nodes", True, f"{count} node" if count == 1 else f"{count} nodes")
    return Probe("nodes", True, "the credential may not list nodes, so nobody counts them") if status == 403 else None


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
        why = f"the cluster did not answer within {SECONDS:.0f} seconds; see that it runs and can be reached from here"
        raise TimedOut(why) from None
