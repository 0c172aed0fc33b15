"""Finds engines by name. An engine is imported when it is used: most runners have one.

An engine of another package is named `module:function`. The function gets an `EngineSettings` and returns an `Engine`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from fairlead.core.files import FileProblem, ensure_private_folder
from fairlead.core.workspaces import engine_for_provider
from fairlead.runner.engines.contract import Engine, EngineError
from fairlead.runner.machine_settings import DEFAULT_MACHINE, MachineSettings
from fairlead.runner.settings import DEFAULT_DISK, NO_CLUSTERS, ClusterAccess, DiskSettings, RunnerSettings

ENGINES_PACKAGE = "fairlead.runner.engines"
TOOLS_FOLDER = Path(__file__).resolve().parents[2] / ".tools" / "bin"


REGISTRIES_VARIABLE = "CONTAINERS_REGISTRIES_CONF"
"""Podman's own variable, which names its list of registries and mirrors."""
DEFAULT_REGISTRIES = "/etc/containers/registries.conf"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine needs to know of its runner. `state_folder` belongs to the engine."""

    runner: str
    state_folder: Path
    allowed_folders: tuple[Path, ...] = ()
    clusters: ClusterAccess = NO_CLUSTERS
    disk: DiskSettings = DEFAULT_DISK
    machine: MachineSettings = DEFAULT_MACHINE


class RangeProblem(FileProblem):
    """Another runner of this machine has a part of the user ids or networks of this one."""


CreateEngine = Callable[[EngineSettings], Engine]


def _create_devcontainer(settings: EngineSettings) -> Engine:
    """Raises RangeProblem if another runner of this machine has a part of the user ids or networks."""
    package = f"{ENGINES_PACKAGE}.devcontainer"
    engine: Any = import_module(f"{package}.engine")
    engine_settings: Any = import_module(f"{package}.settings")
    ranges: Any = import_module(f"{package}.isolation.ranges")
    machine = settings.machine
    chosen = engine_settings.Settings(
        settings.state_folder,
        settings.runner,
        cli=find_devcontainer_cli(TOOLS_FOLDER),
        allowed_folders=settings.allowed_folders,
        min_free_bytes=settings.disk.min_free_bytes,
        workspace_disk_bytes=settings.disk.workspace_bytes,
        image_disk_bytes=settings.disk.image_bytes,
        registries=Path(os.environ.get(REGISTRIES_VARIABLE) or DEFAULT_REGISTRIES),
        first_uid=machine.first_uid,
        network_pool=machine.network_pool,
        feature_sources=machine.feature_sources,
        feature_pins=machine.feature_pins,
        registry_mirrors=machine.registry_mirrors,
        refused_networks=(*engine_settings.REFUSED_NETWORKS, *machine.refused_networks),
        max_limits=machine.max_limits,
        disk_limits=machine.disk_limits,
    )
    if os.geteuid() == 0:  # else the engine says that it needs root
        try:
            ranges.check_range(chosen)
        except EngineError as error:
            raise RangeProblem(error.message) from None
    return cast(Engine, engine.DevcontainerEngine(chosen))


def find_devcontainer_cli(tools: Path) -> tuple[str, ...]:
    """The command of the dev container CLI: that of this source tree, which `make runner-tools` installs, with the
    Node.js beside it if there is one; else the one of the machine."""
    script, node = tools / "devcontainer", tools / "node"
    if not script.exists():
        return ("devcontainer",)
    return (str(node.resolve()) if node.exists() else "node", str(script.resolve()))


def _create_kubernetes(settings: EngineSettings) -> Engine:
    package = f"{ENGINES_PACKAGE}.kubernetes"
    engine: Any = import_module(f"{package}.engine")
    engine_settings: Any = import_module(f"{package}.settings")
    clusters = settings.clusters
    chosen = engine_settings.Settings(
        settings.state_folder,
        settings.runner,
        clusters.kubeconfig,
        clusters.contexts,
        clusters.namespaces,
        clusters.clone_image,
    )
    return cast(Engine, engine.KubernetesEngine(chosen))


ENGINES: Mapping[str, CreateEngine] = {
    "devcontainer": _create_devcontainer,
    "kubernetes": _create_kubernetes,
}
"""The engines of this package."""


def list_permissions() -> frozenset[str]:
    """The permissions that templates can give in the engines of this package."""
    modules = (import_module(f"{ENGINES_PACKAGE}.{each}") for each in ("devcontainer.grant", "kubernetes.settings"))
    return frozenset[str]().union(*(module.PERMISSIONS for module in modules))


def is_system_namespace(namespace: str) -> bool:
    """Whether the engine `kubernetes` never uses this namespace."""
    module: Any = import_module(f"{ENGINES_PACKAGE}.kubernetes.allowed_places")
    return bool(module.is_system_namespace(namespace))


def load_engines(settings: RunnerSettings, names: Sequence[str]) -> dict[str, Engine]:
    """Imports and creates engines; by the name of each, the default first. Raises FileProblem."""
    engines: dict[str, Engine] = {}
    for name in names:
        folder = _ensure_engine_folder(settings.state_folder, name.partition(":")[0])
        try:
            chosen = EngineSettings(
                runner=settings.name,
                state_folder=folder,
                allowed_folders=settings.allowed_folders,
                clusters=settings.clusters,
                disk=settings.disk,
                machine=settings.machine,
            )
            engine = _find_engine(name)(chosen)
        except (ImportError, AttributeError, ValueError) as error:
            known = ", ".join(ENGINES)
            raise FileProblem(f"there is no engine {name!r} ({error}); use {known}, or module:function") from None
        engines[engine.name] = engine
    return engines


def _ensure_engine_folder(state_folder: Path, name: str) -> Path:
    """Users of containers have to pass the folders above their files. They cannot list them."""
    folder = ensure_private_folder(state_folder / "engines" / name)
    for above in (state_folder, folder.parent):
        above.chmod(above.stat().st_mode | 0o011)
    return folder


def _find_engine(name: str) -> CreateEngine:
    if name in ENGINES:
        return ENGINES[name]
    module, _, function = name.partition(":")
    return cast(CreateEngine, getattr(import_module(module), function))


def choose_engine(provider: str, engines: Mapping[str, Engine]) -> str:
    """The name of the engine for a provider; the first one if the template names none; empty if there is none."""
    name = engine_for_provider(provider) or next(iter(engines), "")
    return name if name in engines else ""
