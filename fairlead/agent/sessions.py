"""Keeps the sessions of the agent with its server: joins, proves its key, dials again for ever, and replaces its key.

Two sessions lead to different processes of the server if it has several. Each is replaced by a new one after about half
an hour, before proxies cut it: the new one is there first, and requests that are under way on the old one end there.

Whatever the server says, the agent tries again after a random delay. Nothing here depends on the clock of the machine.
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec
import structlog

from fairlead.agent.identity import Identity, IdentityError, IdentityStore
from fairlead.core.backoff import Backoff, BackoffPolicy
from fairlead.core.crypto.agent_keys import (
    JOIN,
    OFFER,
    PROOF_HEADER,
    SESSION,
    InvalidKey,
    JoinToken,
    build_proof,
    find_public_key,
    generate_private_key,
    sign_proof,
)
from fairlead.core.waiting import background_task
from fairlead.links.connection import Link
from fairlead.links.contract import GOING_AWAY, LinkEnd, OpenHandler
from fairlead.links.dialing import DialError, LinkAddress, dial
from fairlead.links.frames import clean_text
from fairlead.links.limits import LinkLimits

SESSIONS = 2
REDIAL = BackoffPolicy(first_seconds=1.0, max_seconds=30.0, free_attempts=0, jitter=1.0)
"""Full jitter, also at the maximum: after an outage, the agents of all clusters must not dial at once."""
REPLACE_SECONDS = (1500.0, 2100.0)
DRAIN_SECONDS = 3600.0
"""How long requests on a session that was replaced may last."""
STOP_SECONDS = 10.0
"""The same when the agent stops."""
KEY_SECONDS = (79_200.0, 93_600.0)
"""How long a key is used: about a day."""
REQUEST_SECONDS = 20.0
MAX_SHOWN_CHARS = 300
AGENT_LIMITS = LinkLimits(max_streams=1024)
_UNAUTHORIZED = 401

log = structlog.get_logger(__name__)


class ServerError(Exception):
    """The server cannot be reached, or rejects a request: then `status` is that of its response. The message is for the
    log."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Server:
    """`ssl_context` trusts the CA of the server only, if it has one of its own."""

    url: str
    ssl_context: ssl.SSLContext


class ServerApi:
    """Requests to the server, through a proxy if the environment names one."""

    def __init__(self, server: Server, http: httpx.AsyncClient) -> None:
        self._server = server
        self._http = http

    async def get_challenge(self) -> str:
        return str((await self._send("GET", "/agents/challenge")).get("challenge"))

    async def join(self, token: JoinToken, private_key: str) -> None:
        challenge = await self.get_challenge()
        signature = sign_proof(private_key, JOIN, token.cluster, challenge)
        body = {"token": token.encode(), "publicKey": find_public_key(private_key)}
        await self._send("POST", "/agents/join", {**body, "challenge": challenge, "signature": signature})

    async def offer_key(self, identity: Identity, current: str, new: str, instance: str) -> None:
        challenge = await self.get_challenge()
        public = find_public_key(new)
        proof = build_proof(current, OFFER, identity.cluster, instance, challenge, public)
        signature = sign_proof(new, OFFER, identity.cluster, challenge)
        body = {"proof": msgspec.to_builtins(proof), "publicKey": public, "signature": signature}
        await self._send("POST", "/agents/key", body)

    async def session_address(self, identity: Identity, key: str, instance: str) -> LinkAddress:
        proof = build_proof(key, SESSION, identity.cluster, instance, await self.get_challenge())
        parts = urlsplit(self._server.url)
        url = urlunsplit(("wss", parts.netloc, "/agents/session", "", ""))
        return LinkAddress(url, "", self._server.ssl_context, {PROOF_HEADER: proof.encode()})

    async def _send(self, method: str, path: str, body: object = None) -> dict[str, object]:
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"content-type": "application/json"} if body is not None else {}
        try:
            response = await self._http.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise ServerError(f"the server is unreachable: {str(error) or type(error).__name__}") from None
        if response.status_code != httpx.codes.OK:
            text = clean_text(response.text[:MAX_SHOWN_CHARS])
            raise ServerError(f"{method} {path}: status {response.status_code}: {text}", response.status_code)
        try:
            return msgspec.json.decode(response.content, type=dict[str, object])
        except msgspec.MsgspecError:
            raise ServerError(f"{method} {path}: this is no Fairlead server") from None


class AgentSessions:
    """`instance` names this process. `token` is for joining, if the server does not know the key."""

    def __init__(
        self, api: ServerApi, store: IdentityStore, serve: OpenHandler, instance: str, token: JoinToken | None
    ) -> None:
        self._api = api
        self._store = store
        self._serve = serve
        self._instance = instance
        self._token = token
        self._joining = asyncio.Lock()
        self._running: dict[Link, asyncio.Task[LinkEnd]] = {}
        self._renew = asyncio.Event()
        self.on_first_session: Callable[[], None] | None = None
        """Called once."""

    async def run(self) -> None:
        """Until cancelled. Then requests that are under way have a moment to end."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(SESSIONS):
                    group.create_task(self._keep_session())
                group.create_task(self._replace_keys())
        finally:
            await self._drain_all()

    async def _keep_session(self) -> None:
        backoff = Backoff(REDIAL)
        current: Link | None = None
        while True:
            try:
                link = await self._connect()
            except (ServerError, DialError, IdentityError, InvalidKey, OSError, TimeoutError) as error:
                delay = backoff.next_delay()
                log.warning("no session with the server", reason=str(error), retry_seconds=round(delay, 1))
                await asyncio.sleep(delay)
                continue
            backoff.reset()
            if self.on_first_session is not None:
                self.on_first_session()
                self.on_first_session = None
            if current is not None:
                current.drain("replaced by a new session", DRAIN_SECONDS)
            current = link
            ended = self._running[link]
            async with background_task(self._renew.wait()) as renew:
                await asyncio.wait(
                    (ended, renew), timeout=random.uniform(*REPLACE_SECONDS), return_when=asyncio.FIRST_COMPLETED
                )
            if ended.done():
                current = None
                delay = backoff.next_delay()
                log.warning("a session has ended", reason=ended.result().reason, retry_seconds=round(delay, 1))
                await asyncio.sleep(delay)

    async def _connect(self) -> Link:
        identity = await self._store.load()
        if identity is None or (self._token is not None and identity.cluster != self._token.cluster):
            identity = await self._join()
        try:
            return await self._open_session(identity)
        except DialError as error:
            if error.status != _UNAUTHORIZED or self._token is None:
                raise
        return await self._open_session(await self._join())

    async def _open_session(self, identity: Identity) -> Link:
        """With the first of the keys that the server accepts."""
        rejection: DialError | None = None
        for number, key in enumerate(identity.keys):
            try:
                link = await self._dial(identity, key)
            except DialError as error:
                if error.status != _UNAUTHORIZED:
                    raise
                rejection = error
                continue
            if number == 0 and len(identity.keys) > 1:
                await self._store.save(Identity(identity.cluster, (key,)))
                log.info("the server has confirmed the new key", cluster=identity.cluster)
            return link
        raise rejection or DialError("the agent has no key")

    async def _dial(self, identity: Identity, key: str) -> Link:
        transport = await dial(await self._api.session_address(identity, key, self._instance))
        link = Link(transport, self._serve, boot_id=self._instance, is_dialer=True, limits=AGENT_LIMITS)
        running = asyncio.create_task(link.run())
        self._running[link] = running
        running.add_done_callback(lambda _: self._running.pop(link, None))
        if not await link.wait_ready():
            raise DialError(f"the session has ended: {link.end.reason if link.end else ''}")
        log.info("a session with the server is open", cluster=identity.cluster)
        return link

    async def _join(self) -> Identity:
        """Uses the token. All agents of the cluster join with the same key. Raises ServerError."""
        token = self._token
        if token is None:
            raise ServerError("the server does not know this agent; create a join token, and start it with that")
        async with self._joining:
            identity = await self._store.load()
            if identity is None or identity.cluster != token.cluster:
                identity = await self._store.save(Identity(token.cluster, (generate_private_key(),)))
            await self._api.join(token, identity.keys[0])
            log.info("the agent has joined", cluster=identity.cluster)
            return identity

    async def _replace_keys(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*KEY_SECONDS))
            try:
                await self.replace_key()
            except (ServerError, IdentityError, InvalidKey) as error:
                log.warning("the key could not be replaced; the old one stays in use", reason=str(error))

    async def replace_key(self) -> None:
        """The new key is stored before it is offered, and used before the old one is given up: whatever is interrupted,
        one of them is valid."""
        identity = await self._store.load()
        if identity is None:
            return
        if len(identity.keys) == 1:
            wanted = Identity(identity.cluster, (generate_private_key(), *identity.keys))
            identity = await self._store.save(wanted)
        if len(identity.keys) > 1:
            await self._api.offer_key(identity, identity.keys[-1], identity.keys[0], self._instance)
        self._renew.set()
        self._renew.clear()

    async def _drain_all(self) -> None:
        links = dict(self._running)
        for link in links:
            link.drain("the agent stops", STOP_SECONDS)
        if links:
            await asyncio.wait(links.values(), timeout=STOP_SECONDS)
        for link, running in links.items():
            if not running.done():
                await link.close(GOING_AWAY, "the agent stops")
                running.cancel()
        await asyncio.gather(*links.values(), return_exceptions=True)
