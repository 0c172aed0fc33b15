"""A key that is used a lot is hardly ever written: when it was last used is noted beside the requests, not in them."""

import asyncio
from pathlib import Path

from tests.live.process import MANAGEMENT, running

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
USES = 10_000
AT_ONCE = 50


async def test_ten_thousand_uses_cause_no_more_than_a_handful_of_writes(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        with server.client() as admin:
            body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "busy"}}
            key = admin.post(f"{M}/ownedaccesskeys", json=body | {"spec": {}}).json()["spec"]["key"]
            before = _revision(admin.get(f"{M}/ownedaccesskeys").json())
        async with server.async_client() as client:
            client.headers["Authorization"] = f"Bearer {key}"

            async def use(times: int) -> None:
                for _ in range(times):
                    assert (await client.get(f"{M}/apps")).status_code == 200

            await asyncio.gather(*(use(USES // AT_ONCE) for _ in range(AT_ONCE)))
        with server.client() as admin:
            assert _revision(admin.get(f"{M}/ownedaccesskeys").json()) - before <= 5
        assert server.stop() == 0
    with running(tmp_path / "data") as server, server.client() as admin:
        status = admin.get(f"{M}/ownedaccesskeys/busy").json()["status"]
        assert status["lastActivity"], "what was noted is written down when the server stops, at the latest"


def _revision(answer: dict[str, dict[str, str]]) -> int:
    return int(answer["metadata"]["resourceVersion"])
