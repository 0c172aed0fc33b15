"""A server that is killed: whatever it has acknowledged is there after the next start, and versions only rise."""

from pathlib import Path

from tests.harness.server_process import CONFIGMAPS, configmap, running
from tests.live.test_shutdown import Writers, listed

ROUNDS = 2


def test_nothing_acknowledged_is_lost_however_often_it_is_killed(tmp_path: Path) -> None:
    acknowledged: dict[str, str] = {}
    newest = 0
    for number in range(ROUNDS):
        with running(tmp_path / "data") as server:
            assert acknowledged.items() <= listed(server).items()
            with server.client() as client:
                first = client.post(CONFIGMAPS, json=configmap(f"first-{number}")).json()
            assert int(first["metadata"]["resourceVersion"]) > newest
            writers = Writers(server, f"r{number}-")
            writers.wait_for(60 + 40 * number)
            server.kill()
            writers.join()
            assert writers.refused == []
        acknowledged |= writers.acknowledged
        newest = max(map(int, acknowledged.values()))
    with running(tmp_path / "data") as server:
        kept = listed(server)
        with server.client() as client:
            last = client.post(CONFIGMAPS, json=configmap("last")).json()
    assert acknowledged.items() <= kept.items()
    assert int(last["metadata"]["resourceVersion"]) > max(map(int, kept.values()))
