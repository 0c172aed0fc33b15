"""What etcd's operators do, through the JSON that etcd speaks beside gRPC: finding the leader, and making room."""

from typing import Any

import httpx

from tests.chaos.deployment import World
from tests.chaos.faults import Fault, kill_awhile, stop_awhile
from tests.chaos.probes import reads_go_on, until_accepted, until_refused
from tests.chaos.timeouts import eventually
from tests.harness.etcd_server import EtcdCluster, EtcdMember

DEFRAGMENT_SECONDS = 60.0


async def ask(member: EtcdMember, path: str, **body: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"http://{member.endpoint}", timeout=DEFRAGMENT_SECONDS) as client:
        answer = await client.post(f"/v3/{path}", json=body)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told


async def leader_of(cluster: EtcdCluster) -> EtcdMember:
    """The member that says of itself that it leads."""

    async def look() -> EtcdMember | None:
        for member in cluster.members:
            told = await ask(member, "maintenance/status")
            if told.get("leader") == told["header"]["member_id"]:
                return member
        return None

    return await eventually(look, "a leader of etcd")


def kill_leader(cluster: EtcdCluster) -> Fault:
    async def fault(world: World) -> None:
        await kill_awhile(await leader_of(cluster))

    return fault


def freeze_leader(cluster: EtcdCluster) -> Fault:
    """For long enough that the others elect another one; it wakes up as one who still leads, for a moment."""

    async def fault(world: World) -> None:
        await stop_awhile(await leader_of(cluster))

    return fault


def reach_quota(cluster: EtcdCluster) -> Fault:
    """etcd raises its alarm and refuses to write. Its operator makes room and clears the alarm."""

    async def fault(world: World) -> None:
        await until_refused(world, "reached its quota")
        await reads_go_on(world)
        leader = await leader_of(cluster)
        newest = (await ask(leader, "maintenance/status"))["header"]["revision"]
        await ask(leader, "kv/compaction", revision=newest, physical=True)
        for member in cluster.members:
            await ask(member, "maintenance/defragment")
        for alarm in (await ask(leader, "maintenance/alarm", action="GET")).get("alarms", ()):
            await ask(leader, "maintenance/alarm", action="DEACTIVATE", **alarm)
        await until_accepted(world)

    return fault
