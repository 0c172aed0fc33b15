"""Prepares a workspace before anything runs: its number, user ids, network, folders, and what it is granted."""

import fcntl
import hashlib
import ipaddress
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import (
    EngineError,
    FolderSource,
    GitSource,
    ImageSource,
    Limits,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.firewall import BRIDGE_PREFIX, ensure_firewall
from fairlead.runner.engines.devcontainer.grant import (
    IDS_PER_WORKSPACE,
    PERMISSIONS,
    RUNNER_LABEL,
    UID_LABEL,
    Grant,
    encode_grant,
)
from fairlead.runner.engines.devcontainer.layout import (
    WorkspaceFolder,
    list_folders,
    read_json,
    write_file,
    write_json,
)
from fairlead.runner.engines.devcontainer.podman import Podman
from fairlead.runner.engines.devcontainer.sandbox import build_rootfs
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import LAUNCHER

ADDRESSES_PER_WORKSPACE = 16
PACKAGES = Path(__file__).parents[4]
"""Where the shim finds this package."""
SOURCES: dict[str, type[Source]] = {"git": GitSource, "folder": FolderSource, "image": ImageSource}


def allocate_number(settings: Settings, folder: WorkspaceFolder) -> int:
    """The number of the workspace on this machine: the lowest free one, then always the same."""
    with lock_state(settings.state_folder):
        if (identity := read_json(folder.identity)) is not None:
            return int(identity["number"])
        identities = (read_json(each.identity) for each in list_folders(settings.state_folder))
        taken = {identity["number"] for identity in identities if identity is not None}
        number = next(each for each in range(len(taken) + 1) if each not in taken)
        _make_passable(folder.root.parent)
        _make_passable(folder.root)
        write_json(folder.identity, {"number": number})
        return number


@contextmanager
def lock_state(state: Path) -> Iterator[None]:
    _make_passable(state)
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_passable(folder: Path) -> None:
    """The root users of workspaces pass these folders when the runtime mounts something below, and cannot list them."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)


def check_free_disk(settings: Settings) -> None:
    free = shutil.disk_usage(settings.state_folder).free
    if free < settings.min_free_bytes:
        raise EngineError(
            Reason.DISK_FULL,
            f"the runner has {free >> 20} MiB of free disk, and needs {settings.min_free_bytes >> 20} to start a "
            "workspace; delete workspaces or images there",
        )


def build_grant(settings: Settings, spec: WorkspaceSpec, folder: WorkspaceFolder, task_id: str) -> Grant:
    unknown = spec.permissions - PERMISSIONS
    if unknown:
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the template allows {', '.join(sorted(unknown))}, which this engine does not know; "
            f"known are {', '.join(sorted(PERMISSIONS))}",
        )
    limits = bound_limits(spec.limits, settings)
    number = allocate_number(settings, folder)
    return Grant(
        uid=spec.uid,
        task_id=task_id,
        runner=settings.runner,
        template_hash=spec.template_hash,
        podman=settings.podman,
        podman_environment=dict(settings.podman_environment),
        permissions=tuple(sorted(spec.permissions)),
        environment=dict(spec.environment),
        folder=str(folder.root.resolve()),
        project=project_name(spec.name),
        network=network_name(spec.uid),
        first_uid=settings.first_uid + number * IDS_PER_WORKSPACE,
        memory_bytes=limits.memory_bytes or 0,
        cpus=limits.cpus or 0,
        processes=limits.processes or 0,
        feature_sources=settings.feature_sources,
        repository=describe_repository(spec),
    )


def describe_repository(spec: WorkspaceSpec) -> str:
    """Images are shared within a project: it is the users of one who trust each other with what a build fetches."""
    match spec.source:
        case GitSource(url):
            return hashlib.sha256(f"{spec.namespace}\n{url}".encode()).hexdigest()[:16]
        case _:
            return ""


def bound_limits(wanted: Limits, settings: Settings) -> Limits:
    """The wanted limits, else the defaults; never more than the operator allows."""
    chosen = {}
    for name, default in asdict(settings.default_limits).items():
        value = getattr(wanted, name) or default
        bound = getattr(settings.max_limits, name)
        chosen[name] = min(value, bound) if bound else value
    return Limits(**chosen)


def project_name(name: str) -> str:
    """The last part of the work folder's path inside: the name of the workspace, as far as it is harmless in a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "workspace"


def network_name(uid: str) -> str:
    return f"fairlead-{uid}"


def prepare_folders(settings: Settings, folder: WorkspaceFolder, grant: Grant) -> None:
    for path in (folder.home, folder.tmp, folder.task, folder.private):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_source_folders(folder, grant)
    os.chown(folder.private, grant.first_uid, grant.first_uid)
    if not folder.rootfs.exists():
        build_rootfs(folder, grant.first_uid)
    write_file(folder.grant, encode_grant(grant))
    launcher = LAUNCHER.format(python=sys.executable, packages=str(PACKAGES))
    write_file(folder.shim, launcher.encode(), mode=0o700)
    folder.denials.unlink(missing_ok=True)


def make_source_folders(folder: WorkspaceFolder, grant: Grant) -> None:
    """New ones, and those that a runner created just before it was killed, become the workspace's."""
    for parent in (folder.work, folder.staging):
        for path in (parent, parent / grant.project):
            path.mkdir(mode=0o700 if path == parent else 0o755, exist_ok=True)
            if path.lstat().st_uid == os.geteuid():
                os.chown(path, grant.first_uid, grant.first_uid, follow_symlinks=False)


async def prepare(podman: Podman, folder: WorkspaceFolder, grant: Grant) -> None:
    """Everything that the sandbox and the container need."""
    prepare_folders(podman.settings, folder, grant)
    await ensure_firewall(podman.settings)
    ensure_network(podman.settings, grant)


def ensure_network(settings: Settings, grant: Grant) -> None:
    """A network of its own: neighbours on the same one could talk to each other below the firewall.

    The file is that of `podman network create`, which cannot choose the name of the bridge before version 4.4. The name
    that it would take is free among its own networks only: those of another runner on the machine may have it, too, and
    then both would share a bridge.
    """
    number = (grant.first_uid - settings.first_uid) // IDS_PER_WORKSPACE
    pool = ipaddress.IPv4Network(settings.network_pool)
    if (number + 1) * ADDRESSES_PER_WORKSPACE > pool.num_addresses:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"the network pool {pool} has no part left")
    subnet = ipaddress.IPv4Network((int(pool.network_address) + number * ADDRESSES_PER_WORKSPACE, 28))
    network = {
        "name": grant.network,
        "id": hashlib.sha256(grant.network.encode()).hexdigest(),
        "driver": "bridge",
        "network_interface": f"{BRIDGE_PREFIX}{grant.first_uid // IDS_PER_WORKSPACE:x}",
        "created": datetime.now(UTC).isoformat(),
        "subnets": [{"subnet": str(subnet), "gateway": str(subnet.network_address + 1)}],
        "ipv6_enabled": False,
        "internal": False,
        "dns_enabled": True,
        "labels": {UID_LABEL: grant.uid, RUNNER_LABEL: settings.runner},
        "ipam_options": {"driver": "host-local"},
    }
    path = settings.networks_folder / f"{grant.network}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(network, indent=1).encode(), mode=0o644)


def encode_spec(spec: WorkspaceSpec) -> dict[str, Any]:
    """Everything but the secrets."""
    fields = asdict(replace(spec, secrets={}, secret_options={}))
    fields["source"] = {"kind": type(spec.source).__name__.removesuffix("Source").lower(), **asdict(spec.source)}
    return {**fields, "permissions": sorted(spec.permissions), "recreate": False, "reset": False}


def decode_spec(fields: dict[str, Any]) -> WorkspaceSpec:
    source = dict(fields["source"])
    kind = SOURCES[source.pop("kind")]
    changes = {"source": kind(**source), "limits": Limits(**fields["limits"])}
    return WorkspaceSpec(**{**fields, **changes, "permissions": frozenset(fields["permissions"])})
