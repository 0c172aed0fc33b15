"""Connects to runners that listen: those with `spec.endpoint` and `spec.endpointFingerprint`.

It is a controller, so only the leader runs it, and each runner has one connection; other processes use it through their
peers. Whether a runner is reached is in its condition `Reachable`. After a failure it is tried again after a random
delay that grows up to half a minute.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog

from fairlead.authn.link_tokens import LinkTokenIssuer
from fairlead.core.backoff import Backoff
from fairlead.core.clock import timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, get_path, metadata
from fairlead.kinds.clusters.runner import REACHABLE, RUNNERS
from fairlead.links.dialing import REDIAL, STABLE_SECONDS, DialError
from fairlead.links.listening import FingerprintMismatch, connect_runner
from fairlead.links.sockets import SocketTransport
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, with_condition, without_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.upstream.errors import AddressBlocked, UpstreamError

DEFAULT_PORT = 443
CONNECTED, DISCONNECTED = "Connected", "Disconnected"
ADDRESS_BLOCKED, CONNECTION_FAILED = "AddressBlocked", "ConnectionFailed"
FINGERPRINT_MISMATCH = "FingerprintMismatch"

log = structlog.get_logger(__name__)

Resolve = Callable[[str, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class DialTarget:
    """Where a runner listens, and by what it is recognised."""

    runner: str
    uid: str
    host: str
    port: int
    fingerprint: str


def find_target(runner: Object) -> DialTarget | None:
    """None if the server does not connect to this runner."""
    endpoint = get_path(runner, "spec.endpoint")
    fingerprint = get_path(runner, "spec.endpointFingerprint")
    meta = metadata(runner)
    if not endpoint or not fingerprint or meta.get("deletionTimestamp"):
        return None
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    return DialTarget(meta["name"], meta["uid"], parts.hostname or "", parts.port or DEFAULT_PORT, fingerprint)


class RunnerDialer:
    """`resolve` returns an address of a host that the server may connect to, or raises UpstreamError."""

    name, workers = "runner-connections", 1

    def __init__(
        self, registry: Registry, api_group: str, hub: RunnerHub, resolve: Resolve, tokens: LinkTokenIssuer
    ) -> None:
        self.watches = ((api_group, RUNNERS),)
        self._runners = registry.resource(api_group, RUNNERS)
        self._clock = registry.clock
        self._hub = hub
        self._resolve = resolve
        self._tokens = tokens
        self._dialing: dict[str, tuple[DialTarget, asyncio.Task[None]]] = {}

    def subscribe(self, requeue: object) -> Callable[[], None]:
        """Called by the loop. Nothing outside of the store triggers this controller, but it has connections to end."""
        return self._stop_all

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return (key,)

    async def reconcile(self, key: Key) -> float | None:
        name = key[3]
        entry = self._runners.get_cached("", name)
        runner = decode(entry) if entry is not None else None
        target = find_target(runner) if runner is not None else None
        current = self._dialing.get(name)
        if current is not None and (current[0] != target or current[1].done()):
            await self._stop(name)
            current = None
        if target is None:
            if runner is not None and find_condition(runner.get("status"), REACHABLE) is not None:
                await self._write(name, lambda status: without_conditions(status, REACHABLE))
        elif current is None:
            self._dialing[name] = (target, asyncio.create_task(self._keep(target), name=f"dial {name}"))
        return None

    async def _stop(self, name: str) -> None:
        _, task = self._dialing.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _stop_all(self) -> None:
        for _, task in self._dialing.values():
            task.cancel()
        self._dialing = {}

    async def _keep(self, target: DialTarget) -> None:
        """Keeps a connection for ever."""
        backoff = Backoff(REDIAL)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            reason, message = await self._connect_once(target)
            log.warning("no connection to a runner", runner=target.runner, reason=reason, message=message)
            await self._report(target, FALSE, reason, message)
            if loop.time() - began >= STABLE_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next_delay())

    async def _connect_once(self, target: DialTarget) -> tuple[str, str]:
        """Connects, and serves the connection until it ends. Returns why it has ended or failed."""
        try:
            transport = await self._dial(target)
        except FingerprintMismatch as error:
            advice = "check that this is the runner, and set spec.endpointFingerprint to what its process prints"
            return FINGERPRINT_MISMATCH, f"{error}; {advice}"
        except UpstreamError as error:
            reason = ADDRESS_BLOCKED if isinstance(error, AddressBlocked) else CONNECTION_FAILED
            return reason, str(error).replace("cluster's", "runner's").replace("the cluster ", "the runner ")
        except (DialError, ApiError) as error:
            advice = "check spec.endpoint, and that the runner was started with --listen"
            return CONNECTION_FAILED, f"{error}; {advice}"
        await self._report(target, TRUE, CONNECTED, "the server is connected to the runner")
        await self._hub.serve(target.runner, transport, _allow, is_dialer=True)
        return DISCONNECTED, "the connection has ended; the server connects again"

    async def _dial(self, target: DialTarget) -> SocketTransport:
        address = await self._resolve(target.host, target.port)

        async def issue_token() -> str:
            return await self._tokens.issue(target.uid, target.fingerprint)

        return await connect_runner((address, target.port), target.fingerprint, issue_token)

    async def _report(self, target: DialTarget, status: str, reason: str, message: str) -> None:
        now = timestamp(self._clock.now())
        found = condition(REACHABLE, status, reason, message, "Error" if status == FALSE else "")
        await self._write(target.runner, lambda before: with_condition(before, found, now))

    async def _write(self, name: str, edit_status: Callable[[Object], Object]) -> None:
        def edit(runner: Object) -> Object:
            return {**runner, "status": edit_status(runner.get("status") or {})}

        try:
            await self._runners.modify("", name, edit, server_write_options("status"))
        except NotFound:
            return  # it was deleted meanwhile
        except ApiError as error:
            log.warning("the condition of a runner could not be written", runner=name, reason=error.message)


def _allow() -> None:
    """The connection ends with the Runner, or when its endpoint changes: then it is stopped."""
