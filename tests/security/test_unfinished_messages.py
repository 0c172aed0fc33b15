"""Clients that begin messages on WebSockets and never finish them, to exhaust the memory of the server."""

import asyncio
import base64
import os

import httpx
import pytest

from tests.harness.server_process import TIMEOUT_SECONDS, Server, build_tls_context
from tests.live.workspace_setup import M, create_object
from tests.security.conftest import assert_healthy

MIB = 1024 * 1024
CONNECTIONS = 8


@pytest.fixture
def runner_key(server: Server) -> str:
    with server.client() as client:
        if client.get(f"{M}/runners/stalling").status_code == 404:
            create_object(client, f"{M}/runners", "Runner", "stalling")
        key: str = client.get(f"{M}/runners/stalling/accesskey").json()["accessKey"]
    return key


async def upgrade(server: Server, path: str, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = httpx.URL(server.url)
    reader, writer = await asyncio.open_connection(url.host, url.port, ssl=build_tls_context(server.ca_file))
    nonce = base64.b64encode(os.urandom(16)).decode()
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {url.host}:{url.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {nonce}",
        f"Authorization: Bearer {key}",
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


def fragment(size: int, *, is_first: bool) -> bytes:
    """A fragment of a binary message that is not the last one, with the mask 0."""
    return bytes((2 if is_first else 0, 0x80 | 127)) + size.to_bytes(8, "big") + b"\0" * 4 + b"x" * size


async def send_unfinished(server: Server, key: str, fragments: int) -> None:
    """Sends fragments of one MiB, and returns when the server has ended the connection."""
    reader, writer = await upgrade(server, f"{M}/runners/stalling/link", key)

    async def send() -> None:
        for index in range(fragments):
            writer.write(fragment(MIB, is_first=index == 0))
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await reader.read(65536):
                pass
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def test_unfinished_messages_do_not_fill_the_memory_of_the_server(server: Server, runner_key: str) -> None:
    """Each could be 64 MiB, which the HTTP server accepts. The link itself would only give up later."""
    offset = len(server.log.read_text())
    await asyncio.gather(*(send_unfinished(server, runner_key, 60) for _ in range(CONNECTIONS)))
    text = server.log.read_text()[offset:]
    assert text.count("a client sends a message that is too large") == CONNECTIONS
    assert_healthy(server, offset)
