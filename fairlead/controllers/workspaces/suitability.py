"""What a runner lacks for a workspace, by what it reports and by what the template of the workspace wants. Pure.

The provider of the template selects an engine (`core/workspaces.py`). The option `runnerSelector` selects runners by
labels: those of the Runner, and those that it reports. A runner of an earlier version reports no engines; it is taken
as one that has any.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.objects import Object, get_path, labels_of
from fairlead.core.validators import parse_size
from fairlead.core.workspaces import RUNNER_SELECTOR, engine_for_provider

MACHINE_LABELS = frozenset({"kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname"})


@dataclass(frozen=True, slots=True)
class Demand:
    """What the template of a workspace wants of a runner."""

    provider: str = ""
    is_trusted: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those that a runner must have. An entry that is no `name=value` is a name without a value, which none has."""
    memory_bytes: int = 0
    cpus: float = 0.0


def read_demand(workspace: Object) -> Demand:
    options = get_path(workspace, "status.instance.provider.options") or {}
    selected = [each.strip() for each in _read_option(options, RUNNER_SELECTOR).split(",") if each.strip()]
    return Demand(
        provider=str(get_path(workspace, "status.instance.provider.name") or ""),
        is_trusted=get_path(workspace, "status.templateTrust") == "Trusted",
        labels=dict(each.partition("=")[::2] for each in selected),
        memory_bytes=parse_size(_read_option(options, "memory")) or 0,
        cpus=_parse_cpus(_read_option(options, "cpus")),
    )


def find_lack(runner: Object, demand: Demand) -> str:
    """Why the runner cannot run the workspace, as the end of a sentence that begins with its name; empty if it can."""
    return next(_find_lacks(runner, demand), "")


def _find_lacks(runner: Object, demand: Demand) -> Iterator[str]:
    labels = runner_labels(runner)
    missing = [f"{name}={value}" for name, value in demand.labels.items() if labels.get(name) != value]
    if missing:
        yield f"lacks the labels {', '.join(missing)}, which the option {RUNNER_SELECTOR} of the template names"
    engines = _engines_of(runner)
    if not engines:
        return
    names = [str(each.get("name") or "") for each in engines]
    wanted = engine_for_provider(demand.provider) or names[0]
    if wanted not in names:
        yield f"has no engine {wanted}, only {', '.join(names)}"
    elif not demand.is_trusted and wanted != names[0]:
        yield f"has {wanted} not as its first engine, and the template is not trusted, so it cannot choose another one"
    else:
        problem = str(engines[names.index(wanted)].get("problem") or "")
        if problem:
            yield f"has the engine {wanted}, which cannot run workspaces: {problem}"


def is_too_small(runner: Object, demand: Demand) -> bool:
    """Whether the machine of the runner has less than the template gives to one workspace. It would run there, as well
    as it can; what a runner does not report counts as enough."""
    engines = _engines_of(runner)
    wanted = engine_for_provider(demand.provider)
    capacities = [each.get("capacity") for each in engines if wanted in ("", each.get("name"))]
    capacity = capacities[0] if capacities and isinstance(capacities[0], Mapping) else {}
    memory = parse_size(str(capacity.get("memory") or ""))
    cpus = _parse_cpus(str(capacity.get("cpus") or ""))
    return bool(memory and memory < demand.memory_bytes) or bool(cpus and cpus < demand.cpus)


def runner_labels(runner: Object) -> Mapping[str, str]:
    """What it reports about its machine, and what administrators have set, which takes precedence. Others that a runner
    reports do not count: it could claim to be one that an administrator has labelled."""
    reported = get_path(runner, "status.labels") or {}
    machine = {name: value for name, value in reported.items() if name in MACHINE_LABELS}
    return {**machine, **labels_of(runner)}


def _engines_of(runner: Object) -> Sequence[Mapping[str, Any]]:
    return get_path(runner, "status.engines") or ()


def _read_option(options: Any, name: str) -> str:
    value = options.get(name) if isinstance(options, Mapping) else None
    return str((value.get("value") if isinstance(value, Mapping) else value) or "")


def _parse_cpus(text: str) -> float:
    """`2`, `0.5` or `500m`; 0 if it is none of these."""
    number = text.removesuffix("m")
    try:
        return float(number) / (1000 if text.endswith("m") else 1)
    except ValueError:
        return 0.0
