"""A key that is used a lot is hardly ever written: when it was last used is noted beside the requests, not in them."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness.server_process import MANAGEMENT, Server, running, trusting

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
USES = 10_000
AT_ONCE = 50


async def test_ten_thousand_uses_cause_no_more_than_a_handful_of_writes(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        with server.client() as admin:
            body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "busy"}}
            key = admin.post(f"{M}/ownedaccesskeys", json=body | {"spec": {}}).json()["spec"]["key"]
            before = _revision(admin.get(f"{M}/ownedaccesskeys").json())
        await asyncio.gather(*(_use(server, key, USES // AT_ONCE) for _ in range(AT_ONCE)))
        with server.client() as admin:
            assert _revision(admin.get(f"{M}/ownedaccesskeys").json()) - before <= 5
        assert server.stop() == 0
    with running(tmp_path / "data") as server, server.client() as admin:
        status = admin.get(f"{M}/ownedaccesskeys/busy").json()["status"]
        assert status["lastActivity"], "what was noted is written down when the server stops, at the latest"


async def _use(server: Server, key: str, times: int) -> None:
    """On a bare connection of its own: a full client would take ten times as long as the server."""
    url = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=trusting(server.ca_file))
    request = f"GET {M}/apps HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    for _ in range(times):
        writer.write(request)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        assert status == "http/1.1 200 ok"
        await reader.readexactly(next(int(line[15:]) for line in headers if line.startswith("content-length:")))
    writer.close()
    await writer.wait_closed()


def _revision(answer: dict[str, dict[str, str]]) -> int:
    return int(answer["metadata"]["resourceVersion"])
