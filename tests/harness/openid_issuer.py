"""An OpenID issuer that tests control: real TLS on loopback, replaceable documents, and tokens that are forged.

It publishes metadata and keys, counts the requests for them, and can stall, redirect, or respond with anything.
"""

import asyncio
import base64
import hashlib
import json
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from fairlead.signin.oidc.issuer import Issuer
from tests.fake_cluster.certificates import get_authority

METADATA_PATH, KEYS_PATH = "/.well-known/openid-configuration", "/keys"
STALL = -1
"""The status of a document that is never sent."""
DRIP = -2
"""The status of a document that is sent byte by byte, without an end."""


@cache
def private_key(name: str = "rsa") -> Any:
    """A private key by the name of its type; a number distinguishes further ones."""
    kind = name.rstrip("0123456789")
    if kind == "ed":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=1024 if kind == "short" else 2048)


def algorithm_of(name: str) -> str:
    return {"ed": "EdDSA", "ec": "ES256"}.get(name.rstrip("0123456789"), "RS256")


def public_jwk(name: str = "rsa", kid: str | None = None, **changes: Any) -> dict[str, Any]:
    """The published form of a key."""
    algorithm = jwt.api_jws.get_algorithm_by_name(algorithm_of(name))
    found: dict[str, Any] = json.loads(algorithm.to_jwk(private_key(name).public_key()))
    found.pop("key_ops", None)
    return {**found, "use": "sig", "kid": kid or name, **changes}


def encode_part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def sign(claims: Mapping[str, Any] | bytes, key: str = "rsa", header: Mapping[str, Any] | None = None) -> str:
    """A signed token. Claims as bytes are signed as they are; a header with None removes that parameter."""
    named = {"alg": algorithm_of(key), "kid": key, "typ": "JWT", **(header or {})}
    named = {name: value for name, value in named.items() if value is not None}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    content = f"{encode_part(json.dumps(named).encode())}.{encode_part(payload)}"
    algorithm = jwt.api_jws.get_algorithm_by_name(str(named.get("alg", "RS256")))
    return f"{content}.{encode_part(algorithm.sign(content.encode(), private_key(key)))}"


def access_token_hash(access_token: str, hash_name: str = "sha256") -> str:
    digest = hashlib.new(hash_name, access_token.encode()).digest()
    return encode_part(digest[: len(digest) // 2])


@dataclass(slots=True)
class Document:
    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class OpenIdIssuer:
    """The issuer while its server runs. Replace `documents` to change what it publishes."""

    port: int
    host: str = "127.0.0.1"
    documents: dict[str, Document] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def issuer(self, **changes: Any) -> Issuer:
        return Issuer(**{"url": self.url, "ca_pem": get_authority().pem, "allow_loopback": True, **changes})

    def publish(self, path: str, value: Any, status: int = 200, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.documents[path] = Document(body, status, headers)

    def publish_keys(self, *keys: Mapping[str, Any]) -> None:
        self.publish(KEYS_PATH, {"keys": list(keys)})

    def publish_metadata(self, **changes: Any) -> None:
        found = {"issuer": self.url, "jwks_uri": self.url + KEYS_PATH, "token_endpoint": self.url + "/token", **changes}
        self.publish(METADATA_PATH, {name: value for name, value in found.items() if value is not None})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._respond(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        path = head[0].split(" ")[1]
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests[path] += 1
        self.received.append((head[0], headers, body))
        document = self.documents.get(path, Document(b"{}", 404))
        if document.status == STALL:
            await asyncio.sleep(3600)
        status = 200 if document.status == DRIP else document.status
        length = "" if document.status == DRIP else f"content-length: {len(document.body)}\r\n"
        fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in document.headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{fields}{length}\r\n".encode())
        while document.status == DRIP:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(document.body)
        await writer.drain()


def server_context(*names: str) -> ssl.SSLContext:
    """A TLS context with a certificate of the tests' authority."""
    pair = get_authority().issue(*(names or ("127.0.0.1", "localhost")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pair.pem"
        file.write_text(f"{pair.certificate}\n{pair.key}\n")
        context.load_cert_chain(file)
    return context


@asynccontextmanager
async def run_issuer(*names: str, host: str = "127.0.0.1") -> AsyncIterator[OpenIdIssuer]:
    """Runs an issuer that publishes the key `rsa`. `names` are those of its certificate, `host` that of its URL."""
    issuer = OpenIdIssuer(0, host)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await issuer.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server_context(*names))
    issuer.port = server.sockets[0].getsockname()[1]
    issuer.publish_metadata()
    issuer.publish_keys(public_jwk())
    try:
        yield issuer
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
