"""The last use of a key is recorded asynchronously: many uses cause few writes."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness.server_process import MANAGEMENT, Server, build_tls_context, running_server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
USES = 4_000
CONCURRENCY = 50


async def test_thousands_of_uses_cause_at_most_five_writes(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        with server.client() as admin:
            body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "busy"}}
            key = admin.post(f"{M}/ownedaccesskeys", json=body | {"spec": {}}).json()["spec"]["key"]
            version = admin.get(f"{M}/ownedaccesskeys").json()["metadata"]["resourceVersion"]
        await asyncio.gather(*(send_requests(server, key, USES // CONCURRENCY) for _ in range(CONCURRENCY)))
        with server.client() as admin:
            since = {"watch": "1", "resourceVersion": version, "timeoutSeconds": 1}
            events = admin.get(f"{M}/ownedaccesskeys", params=since).text.splitlines()
            assert sum(json.loads(event)["object"]["metadata"]["name"] == "busy" for event in events) <= 5
        assert server.stop() == 0
    with running_server(tmp_path / "data") as server, server.client() as admin:
        status = admin.get(f"{M}/ownedaccesskeys/busy").json()["status"]
        assert status["lastActivity"], "the last use was not written when the server stopped"


async def send_requests(server: Server, key: str, times: int) -> None:
    """Sends requests on a plain connection: an HTTP client would take ten times as long as the server."""
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=build_tls_context(server.ca_file))
    request = f"GET {M}/apps HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    for _ in range(times):
        writer.write(request)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        assert status == "http/1.1 200 ok"
        await reader.readexactly(next(int(line[15:]) for line in headers if line.startswith("content-length:")))
    writer.close()
    await writer.wait_closed()
