"""A server that was broken into, against a real runner process: the runner refuses, stays up, and serves its other
workspaces. It does nothing that its operator did not allow, and writes nothing beside its state folder.

`tests/runner` and `tests/runner/engines` have the barriers one by one. `test_hostile_server_links.py` has the link.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.links.requests import OpenRequest
from tests.harness.bombs import repeat_compressed
from tests.security.attacked_runner import MEMORY_BYTES, Streams, attacked, wait_for, wait_for_task, wait_served
from tests.security.hostile_server import (
    CONFIG,
    CREDENTIALS,
    LEASE,
    RUNNER,
    STATUS,
    UID,
    Answer,
    answer_json,
    build_workspace,
    hostile_server,
    victim_of,
)


def event(object: object, type: str = "MODIFIED") -> bytes:
    return json.dumps({"type": type, "object": object}).encode()


def change(part: str, value: object) -> bytes:
    """The good workspace with one field of another type."""
    workspace = build_workspace()
    *parents, last = part.split(".")
    target: Any = workspace
    for each in parents:
        target = target.setdefault(each, {})
    target[last] = value
    return event(workspace)


# --- what the server lists --------------------------------------------------------------------------------------------


UIDS = ("../escape", "..", ".", "/etc/passwd", "a/b", "a\0b", "x" * 100, "x" * 1_000_000, "-rf", "", "a\nb", "é", "*")


async def test_no_uid_leads_out_of_the_state_folder(tmp_path: Path) -> None:
    hostile = [build_workspace(uid, f"w{number}") for number, uid in enumerate(UIDS)]
    async with attacked(tmp_path, *hostile, build_workspace()) as (_, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        for uid in UIDS:
            if len(uid) < 10_000:
                for action in ("status", "up", "delete", "log", "exec"):
                    code, _ = await link.converse(OpenRequest(action, uid=uid, detach=True), streams.next())
                    assert code == 503, (uid, action)
        records = [path.name for path in (victim.folder / "state" / "workspaces").iterdir()]
        assert records == [f"{UID}.json"]


STRANGE_EVENTS: dict[str, bytes] = {
    "no object": b'{"type":"ADDED"}',
    "a list as object": event([1]),
    "a number as object": event(7),
    "a text as object": event("x"),
    "a list as line": b"[]",
    "no JSON": b"\xff\xfe",
    "deeply nested": b'{"type":"ADDED","object":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
    "a list as metadata": event({"metadata": [1]}),
    "a number as uid": change("metadata.uid", 7),
    "no name": change("metadata.name", None),
    "a name that is a path": change("metadata.name", "../../secrets/x"),
    "a name with an escape sequence": change("metadata.name", "a\x1b]0;x\x07"),
    "a name of 1 MB": change("metadata.name", "x" * 1_000_000),
    "a namespace that is a path": change("metadata.namespace", "../x"),
    "a list as namespace": change("metadata.namespace", ["x"]),
    "annotations that are a list": change("metadata.annotations", [1]),
    "an annotation that is a number": change("metadata.annotations", {"service.sh/workspace-up": 7}),
    "a text as spec": change("spec", "x"),
    "a text as owner": change("spec.owner", "x"),
    "a text as status": change("status", "x"),
    "conditions that are a text": change("status.conditions", "x"),
    "a condition that is a number": change("status.conditions", [7]),
    "a text as template": change("status.instance", "x"),
    "a text as provider": change("status.instance.provider", "x"),
    "options that are a list": change("status.instance.provider.options", [1]),
    "variables that are a list": change("status.instance.workspaceEnv", [1]),
    "a text as activity": change("status.activity", "x"),
    "a text as sleep mode": change("status.sleepModeConfig", {"spec": "x"}),
    "a version of 5,000 digits": change("metadata.resourceVersion", "9" * 5_000),
    "the end of the list at a version of 5,000 digits": json.dumps(
        {
            "type": "BOOKMARK",
            "object": {
                "metadata": {"resourceVersion": "9" * 5_000, "annotations": {"k8s.io/initial-events-end": "true"}}
            },
        }
    ).encode(),
    "an error of the watch that is a list": json.dumps({"type": "ERROR", "object": [1]}).encode(),
}


async def test_no_event_of_the_watch_ends_the_runner_or_the_work_on_other_workspaces(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        for number, (name, line) in enumerate(STRANGE_EVENTS.items()):
            other = build_workspace(f"{number:08d}-2222-4333-8444-555555555555", f"other-{number}")
            good = server.lines[:-1]
            server.lines = [*good, line, event(other, "ADDED"), server.lines[-1]]  # for a watch that begins anew
            await server.send_lines(line, event(other, "ADDED"))
            server.lines = [*good, event(other, "ADDED"), server.lines[-1]]
            await wait_served(link, streams, other["metadata"]["uid"])
            assert victim.is_alive(), f"{name}: {victim.process.read_log()[-3000:]}"
            await wait_served(link, streams)


async def test_the_memory_and_the_records_of_a_flood_of_workspaces_are_bounded(tmp_path: Path) -> None:
    """Also one of objects of megabytes: 100 of them do not fit into what the runner keeps."""
    async with attacked(tmp_path) as (server, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        before = victim.resident_bytes()
        for number in range(100):
            workspace = build_workspace(f"flood-{number}", f"flood-{number}")
            workspace["spec"]["filler"] = "x" * (1 << 20)
            await server.send_lines(event(workspace, "ADDED"))
        last = build_workspace("last", "last", spec=None)
        await server.send_lines(event(last, "ADDED"))
        await wait_for(lambda: "more than 64 MiB together" in victim.process.read_log())
        await wait_served(link, streams)
        assert victim.resident_bytes() - before < MEMORY_BYTES
        records = len(list((victim.folder / "state" / "workspaces").iterdir()))
        assert records < 70


# --- what the server answers ------------------------------------------------------------------------------------------


BOMB = repeat_compressed(b" " * (1 << 20), 256)
"""A quarter of a megabyte."""
STRANGE_ANSWERS: dict[str, tuple[tuple[str, str], Answer]] = {
    "a Runner whose status is a text": (("GET", RUNNER), answer_json({"status": "x"})),
    "a Runner that is a list": (("GET", RUNNER), answer_json([1])),
    "a Lease whose spec is a list": (("PUT", LEASE), answer_json({"spec": [1]})),
    "a Lease with a text as number": (("PUT", LEASE), answer_json({"spec": {"leaseTransitions": "x"}})),
    "a workspace whose status is a text": (("PATCH", STATUS), answer_json(build_workspace(status="x"))),
    "a workspace without metadata": (("PATCH", STATUS), answer_json({})),
    "a page": (("PATCH", STATUS), Answer(b"<html>")),
    "an error that is a list": (("PATCH", STATUS), answer_json([1], 500)),
    "an error whose message is a number": (("PATCH", STATUS), answer_json({"message": 7}, 409)),
    "a redirect": (("PATCH", STATUS), Answer(b"", 307, ("location: https://127.0.0.1:1/",))),
    "an endless body": (("PATCH", STATUS), Answer(b"{", endless=b" " * 65_536)),
    "an endless body of an error": (("PATCH", STATUS), Answer(b"{", 500, endless=b" " * 65_536)),
    "a compressed bomb": (("PATCH", STATUS), Answer(BOMB, 200, ("content-encoding: gzip",))),
    "credentials that are a list": (("GET", CREDENTIALS), answer_json([1])),
    "credentials with a list of options": (("GET", CREDENTIALS), answer_json({"providerOptions": [1]})),
    "credentials with a number as secret": (("GET", CREDENTIALS), answer_json({"workspaceEnv": {"A": 7}})),
    "credentials with errors that are a text": (("GET", CREDENTIALS), answer_json({"errors": "x"})),
}


async def test_no_answer_of_the_server_ends_the_runner(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, victim, link):
        streams = Streams()
        await wait_served(link, streams)
        before = victim.resident_bytes()
        for name, (request, answer) in STRANGE_ANSWERS.items():
            count = len(server.requests)
            server.answers = {request: answer}
            options = {"recreate": True}
            assert (await link.converse(OpenRequest("up", uid=UID, options=options, detach=True), streams.next()))[
                0
            ] == 0
            if request[1] in (STATUS, CREDENTIALS):
                await wait_for(lambda: any(path.endswith(request[1]) for _, path, _ in server.requests[count:]))  # noqa: B023
            await wait_for_task(link, streams)
            server.answers = {}
            assert victim.is_alive(), f"{name}: {victim.process.read_log()[-3000:]}"
        await wait_served(link, streams)
        assert victim.resident_bytes() - before < MEMORY_BYTES


@pytest.mark.long
async def test_no_answer_to_a_heartbeat_ends_the_runner(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, _, link):
        server.answers = dict([STRANGE_ANSWERS["a Lease with a text as number"]])
        await asyncio.sleep(21)  # it is due every ten seconds, and the second one reads the answer to the first
        streams = Streams()
        await wait_served(link, streams)


async def test_a_server_whose_first_answers_are_strange_does_not_end_the_runner(tmp_path: Path) -> None:
    async with hostile_server(tmp_path) as server:
        server.set_workspaces(build_workspace())
        server.answers = {
            ("GET", LEASE + "runner-local"): answer_json({"spec": "x"}),
            ("GET", CONFIG): answer_json({"serviceInstanceID": ["x"]}),
            ("GET", RUNNER): answer_json({"status": "x"}),
        }

        async def relent() -> None:
            for end in (LEASE + "runner-local", CONFIG, RUNNER):
                await asyncio.sleep(3)
                del server.answers["GET", end]

        relenting = asyncio.create_task(relent())
        async with victim_of(server, tmp_path / "runner") as victim:
            await relenting
            await wait_served(await server.next_link(), Streams())
            assert victim.is_alive()
