"""A server that is killed: acknowledged writes exist after the next start, and resource versions only increase."""

from pathlib import Path

from tests.harness.server_process import CONFIGMAPS, configmap, running_server
from tests.live.writers import Writers, list_configmaps

ROUNDS = 2


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    acknowledged: dict[str, str] = {}
    newest = 0
    for number in range(ROUNDS):
        with running_server(tmp_path / "data") as server:
            assert acknowledged.items() <= list_configmaps(server).items()
            with server.client() as client:
                first = client.post(CONFIGMAPS, json=configmap(f"first-{number}")).json()
            assert int(first["metadata"]["resourceVersion"]) > newest
            writers = Writers(server, f"r{number}-")
            writers.wait_for(60 + 40 * number)
            server.kill()
            writers.join()
            # Of several processes, a worker may notice the end of the owner before its own.
            assert set(writers.error_codes) <= {503}
        acknowledged |= writers.acknowledged
        newest = max(map(int, acknowledged.values()))
    with running_server(tmp_path / "data") as server:
        configmaps = list_configmaps(server)
        with server.client() as client:
            last = client.post(CONFIGMAPS, json=configmap("last")).json()
    assert acknowledged.items() <= configmaps.items()
    assert int(last["metadata"]["resourceVersion"]) > max(map(int, configmaps.values()))
