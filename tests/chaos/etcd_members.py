"""Faults of etcd's leader and quota, and the repairs of an operator, through etcd's JSON gateway."""

from typing import Any

import httpx

from tests.chaos.deployment import Deployment
from tests.chaos.faults import Fault, freeze_for_a_while, kill_for_a_while
from tests.chaos.probes import check_reads, write_until_accepted, write_until_rejected
from tests.chaos.timeouts import wait_for
from tests.harness.etcd_server import EtcdCluster, EtcdMember

DEFRAGMENT_SECONDS = 60.0


async def post(member: EtcdMember, path: str, **body: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"http://{member.endpoint}", timeout=DEFRAGMENT_SECONDS) as client:
        response = await client.post(f"/v3/{path}", json=body)
        response.raise_for_status()
        result: dict[str, Any] = response.json()
        return result


async def find_leader(cluster: EtcdCluster) -> EtcdMember:
    """Waits for a member that is the leader by its own status."""

    async def poll() -> EtcdMember | None:
        for member in cluster.members:
            result = await post(member, "maintenance/status")
            if result.get("leader") == result["header"]["member_id"]:
                return member
        return None

    return await wait_for(poll, "a leader of etcd")


def kill_leader(cluster: EtcdCluster) -> Fault:
    async def fault(deployment: Deployment) -> None:
        await kill_for_a_while(await find_leader(cluster))

    return fault


def freeze_leader(cluster: EtcdCluster) -> Fault:
    """Freezes the leader until the others elect another one. It continues believing that it leads, for a moment."""

    async def fault(deployment: Deployment) -> None:
        await freeze_for_a_while(await find_leader(cluster))

    return fault


def reach_quota(cluster: EtcdCluster) -> Fault:
    """etcd raises its alarm and rejects writes. The operator frees space and clears the alarm."""

    async def fault(deployment: Deployment) -> None:
        await write_until_rejected(deployment, "reached its quota")
        await check_reads(deployment)
        leader = await find_leader(cluster)
        newest = (await post(leader, "maintenance/status"))["header"]["revision"]
        await post(leader, "kv/compaction", revision=newest, physical=True)
        for member in cluster.members:
            await post(member, "maintenance/defragment")
        for alarm in (await post(leader, "maintenance/alarm", action="GET")).get("alarms", ()):
            await post(leader, "maintenance/alarm", action="DEACTIVATE", **alarm)
        await write_until_accepted(deployment)

    return fault
