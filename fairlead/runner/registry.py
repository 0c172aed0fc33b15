"""Finds engines by name. An engine is imported when it is used: most runners have one.

An engine of another package is named `module:function`. The function gets an `EngineSettings` and returns an `Engine`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from fairlead.core.files import FileProblem, ensure_private_folder
from fairlead.runner.engines.contract import Engine

ENGINES: Mapping[str, str] = {
    "devcontainer": "fairlead.runner.engines.devcontainer:create_engine",
    "process": "fairlead.runner.engines.process:create_engine",
}
"""The engines of this package."""
PROVIDERS: Mapping[str, str] = {"docker": "devcontainer", "podman": "devcontainer"}
"""Other names of engines in templates. The default template names the provider `docker`."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine needs to know of its runner. `state_folder` belongs to the engine."""

    runner: str
    state_folder: Path
    allowed_folders: tuple[Path, ...] = ()


CreateEngine = Callable[[EngineSettings], Engine]


def load_engines(
    names: Sequence[str], runner: str, state_folder: Path, allowed_folders: tuple[Path, ...] = ()
) -> dict[str, Engine]:
    """Imports and creates engines; by the name of each, the default first."""
    engines: dict[str, Engine] = {}
    for name in names:
        create = _import_engine(name)
        folder = ensure_private_folder(state_folder / "engines" / name.partition(":")[0])
        engine = create(EngineSettings(runner, folder, allowed_folders))
        engines[engine.name] = engine
    return engines


def _import_engine(name: str) -> CreateEngine:
    target = name if ":" in name else ENGINES.get(name, "")
    module, _, function = target.partition(":")
    try:
        return cast(CreateEngine, getattr(import_module(module), function))
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(ENGINES)
        raise FileProblem(f"there is no engine {name!r} ({error}); use one of {known}, or module:function") from None


def choose_engine(provider: str, engines: Mapping[str, Engine]) -> str:
    """The name of the engine for a provider; the first one if the template names none; empty if there is none."""
    name = PROVIDERS.get(provider, provider) or next(iter(engines), "")
    return name if name in engines else ""
