"""A hostile operator of a registry, or a member who names images in it: what its answers reach.

What a registry sends is unpacked into a store that all workspaces of the runner see. So each attack looks for changes
of an image that another registry might have sent before, and of the machine.
"""

import asyncio
import gzip
import io
import json
import socket
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.image_names import is_pulled_here
from fairlead.runner.engines.devcontainer.isolation.disk import read_usage
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.pulled_images import MAX_PULLS
from tests.harness.eventually import eventually
from tests.runner.harness.hostile_registry import (
    ARCHIVE_LAYER,
    CONFIG,
    MANIFEST,
    ZIPPED_LAYER,
    Entry,
    HostileImage,
    describe_config,
    digest,
    make_layer,
)
from tests.runner.harness.image_registry import ImageRegistry, running_registry
from tests.runner.harness.podman import TOOLS, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "4e915740-0000-4000-8000-00000000000{}"
CANARY = "canary-of-the-machine"
LAYER_OF_VICTIM = make_layer(
    [Entry("kept", b"good"), Entry("folder", kind=tarfile.DIRTYPE), Entry("folder/file", b"good")]
)
VICTIM = f"/ws/store/overlay/{digest(LAYER_OF_VICTIM).removeprefix('sha256:')}/diff"
DISK_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Operator:
    """Who runs the registry."""

    containers: Containers
    registry: ImageRegistry
    folder: Path
    registries: Path

    def engine(self, **changes: object) -> DevcontainerEngine:
        return self.containers.engine(registries=self.registries, image_disk_bytes=DISK_BYTES, **changes)

    def offer(self, name: str, image: HostileImage, address: str = "") -> str:
        image.write(self.folder / name, {"{address}": address})
        return f"{self.registry.address}/{name}:1"


@pytest.fixture(scope="module")
def operator(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "images").mkdir()
    with running_registry(containers.number, folder / "images") as registry:
        registries = folder / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        yield Operator(containers, registry, folder / "images", registries)


async def pull_victim(operator: Operator, engine: DevcontainerEngine) -> Holder:
    """Another image in the store. Returns the holder that pulls."""
    if not (operator.folder / "victim").exists():
        operator.offer("victim", HostileImage([LAYER_OF_VICTIM]))
    assert await engine.pulled.ensure([f"{operator.registry.address}/victim:1"])
    return await engine.pulled._start()


async def describe_victim(holder: Holder) -> str:
    """Everything of the other image: its files with their owners and contents."""
    script = f"cd {VICTIM} && find . -exec stat -c '%n %F %a %u %s' {{}} + | sort; cat kept folder/file"
    return await holder.expect("/bin/sh", "-c", script)


# --- other sources than registries ------------------------------------------------------------------------------------


def make_archive(name: str) -> bytes:
    """What `podman save` writes, of an image with this name."""
    layer = make_layer([Entry("poison", b"x")])
    files = {
        "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode(),
        "config.json": json.dumps(describe_config([digest(layer)], {})).encode(),
        "layer.tar": layer,
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


@pytest.mark.timeout(300)
async def test_an_archive_in_an_image_does_not_become_an_image_of_others(operator: Operator) -> None:
    """An archive says itself which name its image gets: that of one which many workspaces use, for example."""
    victim = "docker.io/library/debian:12"
    layer = make_layer([Entry("evil.tar", make_archive(victim))])
    engine = operator.engine()
    carrier = operator.offer("carrier", HostileImage([layer]))
    assert await engine.pulled.ensure([carrier])
    path = f"/ws/store/overlay/{digest(layer).removeprefix('sha256:')}/diff/evil.tar"
    for transport in ("docker-archive", "oci-archive", "dir", "oci"):
        assert await engine.pulled.ensure([f"{transport}:{path}"]) == {}
    holder = await engine.pulled._start()
    names = await holder.expect("podman", "images", "--format", "{{.Repository}}:{{.Tag}}")
    assert carrier in names and victim not in names


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "debian",
            "debian:12",
            "docker:dind",
            "docker.io/library/debian:12",
            "registry.example.com:5000/a/b_c/d-e.f:v1.0_x",
        ),
        *("quay.io/a/b@sha256:" + "0" * 64, "a/b:1@sha256:" + "f" * 64, "Registry.example.com/a"),
    ],
)
def test_names_in_registries_are_pulled_for_all(reference: str) -> None:
    assert is_pulled_here(reference)


@pytest.mark.parametrize(
    "reference",
    [
        *("docker-archive:/ws/x", "docker-archive:x", "oci:x", "oci:/x:tag", "dir:x", "dir:/x", "docker://debian"),
        *(
            "containers-storage:x",
            "containers-storage:[overlay@/ws/store]x",
            "docker-daemon:x:1",
            "sif:x",
            "oci-archive:x",
        ),
        *(
            "--all-tags",
            "-q",
            "",
            "/x",
            "../x",
            "a//b",
            "a/../b",
            "localhost/built",
            "a:b:c",
            "a:/b",
            "a@sha256:0",
            "a b",
        ),
        *("a" * 256, "a\n", "a:é"),
    ],
)
def test_other_sources_are_not_pulled_for_all(reference: str) -> None:
    assert not is_pulled_here(reference)


# --- layers -----------------------------------------------------------------------------------------------------------

UP = "../" * 12
LINK, HARD, DEVICE, BLOCK, PIPE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE
XATTR = "SCHILY.xattr."
LAYERS: Mapping[str, list[list[Entry]]] = {
    "paths above the layer": [[Entry(f"{UP}{VICTIM[1:]}/kept", b"bad"), Entry("../../victim", b"bad")]],
    "absolute paths": [[Entry(f"{VICTIM}/kept", b"bad"), Entry("/etc/passwd", b"bad")]],
    "a link, and a file below it": [[Entry("link", kind=LINK, link=VICTIM), Entry("link/kept", b"bad")]],
    "a relative link, and a file below it": [[Entry("l", kind=LINK, link=f"..{VICTIM[17:]}"), Entry("l/kept", b"bad")]],
    "a link of another layer, and a file below it": [
        [Entry("link", kind=LINK, link=VICTIM)],
        [Entry("link/kept", b"bad"), Entry("link/.wh.folder"), Entry("link/.wh..wh..opq")],
    ],
    "a folder in place of a link of another layer": [
        [Entry("link", kind=LINK, link=VICTIM)],
        [Entry("link", kind=tarfile.DIRTYPE), Entry("link/kept", b"bad")],
    ],
    "hard links to files of others": [
        [Entry("a", kind=HARD, link=f"{UP}{VICTIM[1:]}/kept"), Entry("a", b"bad")],
        [Entry("b", kind=HARD, link=f"{VICTIM}/kept"), Entry("b", b"bad", mode=0o777)],
    ],
    "a hard link through a link": [
        [Entry("link", kind=LINK, link=VICTIM), Entry("a", kind=HARD, link="link/kept"), Entry("a", b"bad")],
    ],
    "whiteouts of what is not in the layer": [
        [
            Entry(".wh..."),
            Entry(".wh.."),
            Entry("x/.wh..."),
            Entry("x/.wh..wh..opq"),
            Entry(f".wh.{UP}{VICTIM[1:]}/kept"),
        ],
        [Entry(".wh."), Entry(".wh..wh.plnk"), Entry(".wh..wh.aufs"), Entry("/.wh.kept")],
    ],
    "devices and pipes": [
        [
            Entry("kmem", kind=DEVICE, device=(1, 2), mode=0o666),
            Entry("disk", kind=BLOCK, device=(7, 0), mode=0o666),
            Entry("pipe", kind=PIPE, mode=0o666),
            Entry("whiteout", kind=DEVICE, device=(0, 0)),
        ]
    ],
    "attributes of overlays": [
        [
            Entry("a", kind=tarfile.DIRTYPE, attributes={f"{XATTR}trusted.overlay.redirect": "/../../victim"}),
            Entry("b", kind=tarfile.DIRTYPE, attributes={f"{XATTR}user.overlay.redirect": VICTIM}),
            Entry("c", b"", attributes={f"{XATTR}user.overlay.metacopy": "", f"{XATTR}user.overlay.redirect": "/x"}),
            Entry("d", b"#!", attributes={f"{XATTR}security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff"}),
            Entry("e", b"", attributes={f"{XATTR}user.containers.override_stat": "0:0:06777"}),
        ]
    ],
    "ids that no workspace has": [[Entry("a", b"x", uid=4294967294), Entry("b", b"x", uid=70000, mode=0o6777)]],
    "a folder of the store as a name": [[Entry("diff", kind=LINK, link=VICTIM), Entry("../diff/kept", b"bad")]],
}


@pytest.mark.timeout(600)
async def test_layers_reach_neither_other_images_nor_the_machine(operator: Operator) -> None:
    engine = operator.engine()
    holder = await pull_victim(operator, engine)
    before = await describe_victim(holder)
    images = [
        operator.offer(f"layers{number}", HostileImage([make_layer(each) for each in layers]))
        for number, layers in enumerate(LAYERS.values())
    ]
    for image in images:
        await engine.pulled.ensure([image])
        assert await describe_victim(holder) == before, image
    devices = (
        "find /ws /var -type b -o -type c -exec stat -c '%t:%T %n' {} + | grep -v '^0:0 '"  # whiteouts of overlays
    )
    assert (await holder.run("/bin/sh", "-c", f"{devices}; find /ws /var -path /ws/victim")).output == ""
    written = await holder.expect("/bin/sh", "-c", "find / -xdev -newer /etc/passwd -type f; cat /etc/passwd")
    assert "bad" not in written
    assert await engine.pulled.ensure([f"{operator.registry.address}/victim:1"])


# --- manifests --------------------------------------------------------------------------------------------------------


def describe_layers(*described: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"layers": [{"mediaType": ARCHIVE_LAYER, "size": 10, **each} for each in described]}


PLAIN = make_layer([Entry("plain", b"x")])
MANIFESTS = {
    "a layer with another digest": HostileImage(
        [PLAIN],
        manifest=describe_layers({"digest": f"sha256:{'0' * 64}"}),
        behaviour={"/blobs/sha256:0000": {"body": "no such layer"}},
    ),
    "a digest that is a path": HostileImage(
        [PLAIN], manifest=describe_layers({"digest": f"sha256:{UP}{VICTIM[1:]}/kept"})
    ),
    "a digest without an algorithm": HostileImage([PLAIN], manifest=describe_layers({"digest": f"../..{VICTIM}/kept"})),
    "a config with a path as its digest": HostileImage(
        [PLAIN], manifest={"config": {"mediaType": CONFIG, "size": 2, "digest": "sha256:../../x"}}
    ),
    "an unknown algorithm": HostileImage([PLAIN], manifest=describe_layers({"digest": f"md5:{'0' * 32}"})),
    "a negative size": HostileImage([PLAIN], manifest=describe_layers({"digest": digest(PLAIN), "size": -1})),
    "a size beyond all disks": HostileImage(
        [PLAIN], manifest=describe_layers({"digest": digest(PLAIN), "size": 1 << 62})
    ),
    "layers that are no list": HostileImage([PLAIN], manifest={"layers": {"a": 1}}),
    "layers at other addresses": HostileImage(
        [PLAIN],
        manifest=describe_layers(
            {
                "digest": f"sha256:{'1' * 64}",
                "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                "urls": ["http://{address}/layer", "file:///etc/passwd"],
            }
        ),
    ),
    "a list that contains itself": HostileImage(
        [PLAIN],
        manifest={
            "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json",
            "manifests": [{"digest": digest(b""), "size": 1}],
        },
    ),
    "another type": HostileImage(
        [PLAIN], behaviour={"/manifests/": {"headers": {"Content-Type": "text/html"}, "body": "<html>"}}
    ),
    "no JSON": HostileImage(
        [PLAIN], behaviour={"/manifests/": {"headers": {"Content-Type": MANIFEST}, "body": "[" * 100_000}}
    ),
    "a manifest without an end": HostileImage(
        [PLAIN], behaviour={"/manifests/": {"headers": {"Content-Type": MANIFEST}, "endless": True}}
    ),
    "a config without an end": HostileImage(
        [PLAIN],
        manifest={"config": {"mediaType": CONFIG, "size": 5, "digest": f"sha256:{'2' * 64}"}},
        behaviour={"/blobs/sha256:2222": {"endless": True}},
    ),
    "more layers than a mount can have": HostileImage(
        [make_layer([Entry(f"file{number}", b"x")]) for number in range(600)]
    ),
    "redirects without an end": HostileImage(
        [PLAIN], behaviour={"/blobs/": {"status": 302, "headers": {"Location": "/v2/manifests13/blobs/x"}}}
    ),
    "a login at an address of the machine": HostileImage(
        [PLAIN],
        behaviour={
            "/manifests/": {
                "status": 401,
                "headers": {"WWW-Authenticate": 'Bearer realm="http://{address}/token",service="x"'},
            }
        },
    ),
    "a redirect to an address of the machine": HostileImage(
        [PLAIN], behaviour={"/blobs/": {"status": 302, "headers": {"Location": "http://{address}/x"}}}
    ),
    "a redirect to a metadata service": HostileImage(
        [PLAIN],
        behaviour={"/blobs/": {"status": 307, "headers": {"Location": "http://169.254.169.254/latest/meta-data"}}},
    ),
    "a redirect to a file": HostileImage(
        [PLAIN], behaviour={"/blobs/": {"status": 302, "headers": {"Location": "file:///etc/passwd"}}}
    ),
    "an error that fills the log": HostileImage(
        [PLAIN],
        behaviour={
            "/manifests/": {
                "status": 500,
                "headers": {"Content-Type": "application/json"},
                "body": json.dumps({"errors": [{"code": "x", "message": "y" * 500_000}]}),
            }
        },
    ),
}

HARMLESS = {"a negative size", "a size beyond all disks", "more layers than a mount can have"}
"""Podman may pull them: what counts is what arrives."""


@pytest.mark.timeout(600)
async def test_manifests_and_redirects_reach_neither_other_images_nor_the_machine(operator: Operator) -> None:
    engine = operator.engine()
    holder = await pull_victim(operator, engine)
    before = await describe_victim(holder)
    engine.pulled._slots = asyncio.Semaphore(len(MANIFESTS))
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.setblocking(False)
        gateway = (await holder.expect("/bin/sh", "-c", "ip route show default")).split()[2]
        address = f"{gateway}:{server.getsockname()[1]}"
        images = [
            operator.offer(f"manifests{number}", image, address) for number, image in enumerate(MANIFESTS.values())
        ]
        results = await asyncio.gather(*(pull_for(engine, image, 30) for image in images))
        with pytest.raises(BlockingIOError):
            server.accept()
    came = [name for name, result in zip(MANIFESTS, results, strict=True) if result]
    assert set(came) <= HARMLESS
    assert await describe_victim(holder) == before
    assert holder.is_alive()
    assert await engine.pulled.ensure([operator.offer("after-manifests", HostileImage([PLAIN]))])


async def pull_for(engine: DevcontainerEngine, image: str, seconds: float) -> dict[str, str]:
    """Nothing if it takes longer, as at the deadline of a task."""
    try:
        return await asyncio.wait_for(engine.pulled.ensure([image]), seconds)
    except TimeoutError:
        return {}


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
async def test_registries_that_do_not_answer_hold_up_no_other_images(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runner.engines.devcontainer.pulled_images.WAIT_SECONDS", 0.5)
    engine = operator.engine()
    silent = HostileImage([PLAIN], behaviour={"/manifests/": {"seconds": 600}})
    waiting = []
    try:
        for number in range(MAX_PULLS):
            good = operator.offer(f"good{number}", HostileImage([PLAIN, make_layer([Entry(f"good{number}")])]))
            began = time.monotonic()
            assert await engine.pulled.ensure([good]), number
            assert time.monotonic() - began < 60
            image = operator.offer(f"silent{number}", silent)
            waiting.append(asyncio.create_task(engine.pulled.ensure([image])))
            await eventually(partial(operator.registry.count, f"/silent{number}/"), 30)
        late = operator.offer("late", HostileImage([PLAIN, make_layer([Entry("late")])]))
        assert await engine.pulled.ensure([late]) == {}  # the workspace pulls it itself
        assert await engine.pulled.ensure([good])  # what is there needs no turn
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert await engine.pulled.ensure([late])


@pytest.mark.timeout(300)
async def test_what_a_pull_without_an_end_has_written_is_removed_when_it_was_killed(operator: Operator) -> None:
    engine = operator.engine()
    holder = await pull_victim(operator, engine)
    endless = HostileImage(
        [PLAIN],
        manifest=describe_layers({"digest": f"sha256:{'3' * 64}", "size": 1 << 40}),
        behaviour={"/blobs/sha256:3333": {"endless": True}},
    )
    image = operator.offer("endless", endless)
    pulling = asyncio.create_task(engine.pulled.ensure([image]))
    await eventually(lambda: count_temporary_bytes(holder) > 50 << 20, 60)
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    assert await engine.pulled.ensure([operator.offer("after-endless", HostileImage([make_layer([Entry("a")])]))])
    assert count_temporary_bytes(holder) < 1 << 20


def count_temporary_bytes(holder: Holder) -> int:
    """Of pulls."""
    folder = Path(f"/proc/{holder.pid}/root/var/tmp")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sort", ["bytes", "files"])
async def test_an_image_that_fills_the_disk_takes_no_more_than_that(operator: Operator, sort: str) -> None:
    """A small layer that becomes a large one, and one with more files than the disk can have."""
    engine = operator.engine()
    holder = await pull_victim(operator, engine)
    await engine.pulled._remove_unused(holder)
    if sort == "bytes":
        layer = make_layer([Entry("zeros", bytes(DISK_BYTES + (64 << 20)))])
    else:
        layer = make_layer([Entry(f"{number}") for number in range(DISK_BYTES // 16384 + 1000)])
    packed = gzip.compress(layer, 1)
    image = HostileImage(
        [packed], manifest=describe_layers({"digest": digest(packed), "size": len(packed), "mediaType": ZIPPED_LAYER})
    )
    assert await engine.pulled.ensure([operator.offer(f"full-of-{sort}", image)]) == {}
    assert engine.pulled.folder.disk.stat().st_blocks * 512 <= DISK_BYTES
    assert await engine.pulled.ensure([operator.offer(f"after-full-of-{sort}", HostileImage([PLAIN]))])
    usage = read_usage(holder.pid)
    assert usage is not None and usage.describe_shortage() == ""


# --- configurations ---------------------------------------------------------------------------------------------------

METADATA = [
    {"remoteUser": "root", "containerEnv": {"FROM_LABEL": "${localEnv:FAIRLEAD_RUNNER_KEY}"}, "init": True},
    {"customizations": {"vscode": {"extensions": ["x" * 10_000]}}, "forwardPorts": ["169.254.169.254:80"]},
]
CONFIG_OF_IMAGE = {
    "Env": [
        "FAIRLEAD_RUNNER_KEY",
        "*",
        "FAIRLEAD_*",
        "_CONTAINERS_USERNS_CONFIGURED",
        "NAME WITH SPACE=x",
        "PATH=/usr/bin:/bin",
    ],
    "User": "root:root",
    "Entrypoint": ["/bin/sh", "-c", 'exec "$0" "$@"'],
    "StopSignal": "SIGKILL",
    "Volumes": {"/run/fairlead/secrets": {}},
    "Labels": {
        "devcontainer.metadata": json.dumps(METADATA),
        "fairlead.recovery": "true",
        "fairlead.task": "another",
        "fairlead.template": "another",
        "io.containers.capabilities": "SYS_ADMIN,MKNOD",
        "io.podman.annotations.privileged": "TRUE",
        "run.oci.keep_original_groups": "1",
    },
}


@pytest.mark.timeout(400)
async def test_the_configuration_of_an_image_gives_its_container_no_more(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2026-57231: podman takes a variable without a value from its own environment, and with `*` any number of
    them. It has nothing secret there."""
    monkeypatch.setenv("FAIRLEAD_RUNNER_KEY", CANARY)
    engine = operator.engine()
    uid = UID.format(1)
    task = RecordedTask()
    image = operator.offer("configured", HostileImage(base=TOOLS / "workspace-image.tar", config=CONFIG_OF_IMAGE))
    spec = WorkspaceSpec(
        uid, "p", "demo", "mallory", ImageSource(image), template_hash="own", secrets={"API_TOKEN": CANARY}
    )
    try:
        await engine.up(spec, task)
        script = "env; cat /proc/1/environ | tr '\\0' '\\n'; grep CapEff /proc/self/status"
        seen = (await run_inside(engine, uid, script)).output
        status = await engine.status(uid)
    finally:
        await engine.delete(uid, RecordedTask("delete"))
    assert (status.is_recovery, status.task_id, status.template_hash) == (False, task.task_id, "own")
    capabilities = int(seen.partition("CapEff:")[2].split()[0], 16)
    assert not capabilities & (1 << 21 | 1 << 27)  # SYS_ADMIN and MKNOD
    assert CANARY not in seen + task.text
