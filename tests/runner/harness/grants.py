"""Grants for tests of the policy and the shim, which need no containers."""

from dataclasses import replace

from fairlead.runner.engines.devcontainer.grant import Grant

UID = "11111111-aaaa-4aaa-8aaa-000000000001"
CONTAINER = "c" * 64


def make_grant(*permissions: str, **changes: object) -> Grant:
    grant = Grant(
        uid=UID,
        task_id="task-1",
        runner="runner",
        template_hash="t1",
        podman="/usr/bin/podman",
        permissions=permissions,
        environment={"STAGE": "test"},
        project="demo",
        first_uid=1_000_000_000,
        memory_bytes=256 << 20,
        cpus=1.5,
        processes=128,
    )
    return replace(grant, **changes)  # type: ignore[arg-type]
