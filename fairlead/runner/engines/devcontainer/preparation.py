"""Prepares a workspace before anything runs: its number, user ids, network, limits, folders, and what it is granted."""

import dataclasses
import hashlib
import os
import re
import shutil
from dataclasses import asdict, replace
from typing import Any

from fairlead.core.validators import format_size, parse_size
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
from fairlead.runner.engines.devcontainer.git_config import PATH, VARIABLE
from fairlead.runner.engines.devcontainer.grant import FORMER_PERMISSIONS, IDS_PER_WORKSPACE, PERMISSIONS, Grant
from fairlead.runner.engines.devcontainer.isolation.disk import MIN_DISK_BYTES, create_disk
from fairlead.runner.engines.devcontainer.isolation.firewall import ensure_firewall, protect_network
from fairlead.runner.engines.devcontainer.isolation.network import ensure_network
from fairlead.runner.engines.devcontainer.isolation.ranges import claim_number
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import OWN_IMAGES, OWN_IMAGES_WORK
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.settings import Settings

STORAGE_OPTION = "storage"
"""The option of a template with the size of the disk."""
PULL_POLICY_OPTION = "imagePullPolicy"
"""The option of a template that says whether an image is pulled again that is there, for each new container."""
ALWAYS, IF_NOT_PRESENT = "Always", "IfNotPresent"
HOME_OPTION = "home"
"""The option of a template that says what becomes of the home folder when the container is replaced."""
KEEP, REPLACE = "keep", "replace"
SOURCES: dict[str, type[Source]] = {"git": GitSource, "folder": FolderSource, "image": ImageSource}


def check_free_disk(settings: Settings) -> None:
    free = shutil.disk_usage(settings.state_folder).free
    if free < settings.min_free_bytes:
        raise EngineError(
            Reason.DISK_FULL,
            f"the runner has {free >> 20} MiB of free disk, and needs {settings.min_free_bytes >> 20} to start a "
            "workspace; delete workspaces or images there",
        )


def build_grant(settings: Settings, spec: WorkspaceSpec, folder: WorkspaceFolder, task_id: str) -> Grant:
    unknown = spec.permissions - PERMISSIONS - FORMER_PERMISSIONS
    if unknown:
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the template allows {', '.join(sorted(unknown))}, which this engine does not know; "
            f"known are {', '.join(sorted(PERMISSIONS))}",
        )
    limits = bound_limits(spec.limits, settings)
    number = claim_number(settings, folder)
    return Grant(
        uid=spec.uid,
        task_id=task_id,
        runner=settings.runner,
        template_hash=spec.template_hash,
        podman=settings.podman,
        permissions=tuple(sorted(spec.permissions & PERMISSIONS)),
        environment={VARIABLE: PATH, **spec.environment},
        project=project_name(spec.name),
        first_uid=settings.first_uid + number * IDS_PER_WORKSPACE,
        memory_bytes=limits.memory_bytes or 0,
        cpus=limits.cpus or 0,
        processes=limits.processes or 0,
        disk_bytes=choose_disk_bytes(spec, settings),
        feature_sources=settings.feature_sources,
        feature_pins=dict(settings.feature_pins),
        pulls_always=choose_pull_policy(spec) == ALWAYS,
        keeps_home=read_home_option(spec),
        repository=describe_repository(spec),
    )


def read_home_option(spec: WorkspaceSpec) -> bool:
    wanted = spec.options.get(HOME_OPTION) or REPLACE
    if wanted not in (KEEP, REPLACE):
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the option {HOME_OPTION} of the template's provider is {wanted!r}; it must be {KEEP} or {REPLACE}",
        )
    return wanted == KEEP


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


def choose_disk_bytes(spec: WorkspaceSpec, settings: Settings) -> int:
    """What the template wants, never more than the operator allows; 0 if that is no limit."""
    wanted = spec.options.get(STORAGE_OPTION, "")
    size = parse_size(wanted) if wanted else settings.workspace_disk_bytes
    if size is None or (wanted and size < MIN_DISK_BYTES):
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the option {STORAGE_OPTION} of the template's provider is {wanted!r}; it must be a size such as 10Gi, "
            f"and at least {format_size(MIN_DISK_BYTES)}",
        )
    return min(size, settings.workspace_disk_bytes)


def choose_pull_policy(spec: WorkspaceSpec) -> str:
    policy = spec.options.get(PULL_POLICY_OPTION) or IF_NOT_PRESENT
    if policy not in (ALWAYS, IF_NOT_PRESENT):
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the option {PULL_POLICY_OPTION} of the template's provider is {policy!r}; this engine knows {ALWAYS} and "
            f"{IF_NOT_PRESENT}",
        )
    return policy


def project_name(name: str) -> str:
    """The last part of the work folder's path inside: the name of the workspace, as far as it is harmless in a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "workspace"


async def prepare_disk(folder: WorkspaceFolder, grant: Grant) -> None:
    """Creates what the holder mounts. A disk keeps its size. A workspace that began without one stays without: its
    files would have to be copied, and its images and volumes are not only files."""
    folder.task.mkdir(mode=0o700, exist_ok=True)
    if folder.disk.exists():
        return
    if folder.work.exists():
        prepare_folders(folder, grant)
        return
    folder.unused.touch()
    if grant.disk_bytes:
        await create_disk(folder.disk, grant.disk_bytes)
    else:
        prepare_folders(folder, grant)


def prepare_folders(folder: WorkspaceFolder, grant: Grant) -> None:
    """Only the folders themselves: what is below them belongs to the workspace."""
    folder.work.mkdir(mode=0o700, exist_ok=True)
    own_images = (folder.root / OWN_IMAGES, folder.root / OWN_IMAGES_WORK)
    for path in (folder.work / grant.project, folder.store, folder.var, folder.private, *own_images):
        path.mkdir(mode=0o755 if path.parent == folder.work else 0o700, exist_ok=True)
        if path.lstat().st_uid == os.geteuid():  # new, or created by a runner that was killed just then
            os.chown(path, grant.first_uid, grant.first_uid, follow_symlinks=False)


async def prepare(settings: Settings, folder: WorkspaceFolder, grant: Grant) -> str:
    """What all holders of a workspace share: disk, firewall and network, the namespace of which it returns."""
    await prepare_disk(folder, grant)
    await ensure_firewall(settings)
    network = await ensure_network(settings, grant)
    await protect_network(settings, network)
    return network


def encode_spec(spec: WorkspaceSpec) -> dict[str, Any]:
    """Everything but the secrets."""
    fields = asdict(replace(spec, secrets={}, secret_options={}, registries=()))
    fields["source"] = {"kind": type(spec.source).__name__.removesuffix("Source").lower(), **asdict(spec.source)}
    once = {"recreate": False, "reset": False, "discards_home": False, "takes_snapshot": False}
    return {**fields, "permissions": sorted(spec.permissions), **once}


def decode_spec(fields: dict[str, Any]) -> WorkspaceSpec:
    """Of what another version has written, what this one knows."""
    known = {each.name for each in dataclasses.fields(WorkspaceSpec)}
    source = dict(fields["source"])
    kind = SOURCES[source.pop("kind")]
    changes = {
        "source": kind(**source),
        "limits": Limits(**fields["limits"]),
        "permissions": frozenset(fields["permissions"]),
        "git_path_hosts": tuple(fields.get("git_path_hosts") or ()),  # 0.2 has none
        "registries": (),  # they are secrets, which are not stored
    }
    return WorkspaceSpec(**{name: value for name, value in fields.items() if name in known} | changes)
