"""Tests of `election.py`: two replicas that lead at once are detected, consecutive leaders are not reported."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.chaos.deployment import Deployment, Replica
from tests.chaos.election import END_OF_LEADERSHIP, monitor_leaders, read_leader_identity
from tests.harness.replicas import BECAME_LEADER


@pytest.fixture
def pair(tmp_path: Path) -> Deployment:
    replicas = [Replica(tmp_path / name, port, {}) for port, name in enumerate("ab")]
    for replica in replicas:
        replica.log.write_text("not JSON\n")
        replica.process = subprocess.Popen(["true"])
        replica.process.wait()
    return Deployment(replicas)


def write_log(replica: Replica, event: str) -> None:
    with replica.log.open("a") as log:
        log.write(json.dumps({"event": event, "identity": replica.folder.name}) + "\n")


async def find_anomalies(deployment: Deployment) -> list[str]:
    async with monitor_leaders(deployment):
        await asyncio.sleep(0.2)
    return deployment.anomalies


async def test_two_leaders_at_once_are_detected(pair: Deployment) -> None:
    for replica in pair.replicas:
        write_log(replica, BECAME_LEADER)
    assert await find_anomalies(pair) == ["2 replicas lead at once: ['a', 'b']"]


async def test_consecutive_leaders_are_not_reported(pair: Deployment) -> None:
    first, second = pair.replicas
    write_log(first, BECAME_LEADER)
    assert read_leader_identity(first) == "a"
    write_log(first, f"{END_OF_LEADERSHIP[0]}: controllers are stopped in this replica")
    write_log(second, BECAME_LEADER)
    assert (read_leader_identity(first), read_leader_identity(second)) == ("", "b")
    assert await find_anomalies(pair) == []


async def test_a_killed_replica_does_not_lead(pair: Deployment) -> None:
    first, second = pair.replicas
    write_log(first, BECAME_LEADER)
    write_log(second, BECAME_LEADER)
    first.kill()
    assert await find_anomalies(pair) == []
