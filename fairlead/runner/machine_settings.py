"""The configuration file of a runner (`--config`): what its machine gives to workspaces of the engine `devcontainer`.

    first_uid: 1000000000
    network_pool: 10.213.0.0/16
    feature_sources: [registry.example.com/features]
    feature_pins: {registry.example.com/features/go: "sha256:..."}
    refused_networks: [10.0.0.0/8]
    max_limits: {memory: 8Gi, cpus: 4, processes: 4096}
    disk_limits: {bytes: 256Mi, operations: 10000}

All of it is optional. What is not understood is an error, and all errors are reported together: a setting that was
misread would open what the operator meant to close.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.core.files import FileProblem, read_file
from fairlead.core.suggestions import suggest_name
from fairlead.core.validators import format_size, parse_size
from fairlead.runner.engines.contract import Limits
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.isolation.network import ADDRESSES_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.settings import (
    DEFAULT_DISK_LIMITS,
    DEFAULT_FEATURE_SOURCES,
    DEFAULT_FIRST_UID,
    DEFAULT_NETWORK_POOL,
    NO_LIMITS,
    DiskLimits,
)
from fairlead.runner.ssh import confinement

MAX_BYTES = 64 << 10
MAX_LISTED = 256
LARGEST_POOL, SMALLEST_POOL = 12, 27
"""Lengths of the prefix. The smallest pool has two networks: one is for the images that all workspaces use."""
MIN_MEMORY_BYTES, MIN_PROCESSES = 64 << 20, 16
MIN_DISK_BYTES_PER_SECOND, MIN_DISK_OPERATIONS = 1 << 20, 50
"""With less, no workspace starts within its deadlines."""
RESERVED_UIDS = range(confinement.FIRST_UID, confinement.FIRST_UID + confinement.UIDS)
"""Those of the processes that serve SSH."""
END_OF_UIDS = (1 << 32) - 1
"""The last one means none."""
_SOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?")

_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+)([:/]|$)")

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class MachineSettings:
    first_uid: int = DEFAULT_FIRST_UID
    """Workspace number n has the 65536 user and group ids from here plus n times 65536."""
    network_pool: str = DEFAULT_NETWORK_POOL
    """Workspace number n has the n-th network of 16 addresses of this one."""
    feature_sources: tuple[str, ...] = DEFAULT_FEATURE_SOURCES
    """Prefixes of the features that every repository may use."""
    feature_pins: tuple[tuple[str, str], ...] = ()
    """Names of features without a version, and the digest of the content that every repository gets."""
    registry_mirrors: tuple[tuple[str, str], ...] = ()
    """Registries, and where their images are fetched first."""
    refused_networks: tuple[str, ...] = ()
    """What workspaces cannot reach, besides what they never can."""
    max_limits: Limits = NO_LIMITS
    """What a template can choose at most. None: no bound."""
    disk_limits: DiskLimits = DEFAULT_DISK_LIMITS
    """How fast one workspace reads, and how fast it writes, in a second."""


DEFAULT_MACHINE = MachineSettings()


def read_machine_settings(path: Path) -> MachineSettings:
    """Raises FileProblem with everything that is wrong."""
    values = _read_values(path)
    problems = [f"{path}: {each}" for each in _find_unknown(values, SETTINGS)]
    chosen: dict[str, Any] = {}
    for name, parse in SETTINGS.items():
        if name in values:
            try:
                chosen[name] = parse(values[name])
            except _Invalid as error:
                problems.append(f"{path}: {name} {error}")
    if not problems:
        settings = MachineSettings(**chosen)
        problems = [f"{path}: {each}" for each in _check_ids(settings)]
    if problems:
        raise FileProblem("\n".join(problems))
    return settings


class _Invalid(Exception):
    """What a value must be."""


def _read_values(path: Path) -> Mapping[str, Any]:
    import yaml

    content = read_file(path)
    if content is None:
        raise FileProblem(f"{path}: no such file; create it, or leave out --config")
    if len(content) > MAX_BYTES:
        raise FileProblem(f"{path}: is larger than {MAX_BYTES >> 10} KiB; is it the configuration of a runner?")
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" in line {line + 1}"
        raise FileProblem(f"{path}: invalid YAML{where}; check the indentation and the quotes") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise FileProblem(f"{path}: must contain settings, one `name: value` per line")
    return values


def _find_unknown(values: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    for name in values:
        if name not in known:
            yield f"unknown setting {name[:80]}; {suggest_name(name[:80], known, 'remove it')}"


def _parse_integer(value: Any, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise _Invalid(f"must be a number from {lowest} to {highest}")
    return value


def _parse_first_uid(value: Any) -> int:
    return _parse_integer(value, IDS_PER_WORKSPACE, END_OF_UIDS - IDS_PER_WORKSPACE)


def _parse_pool(value: Any) -> str:
    network = _parse_network(value)
    is_usable = network.is_private and not (network.is_loopback or network.is_link_local or network.is_unspecified)
    if not is_usable or not LARGEST_POOL <= network.prefixlen <= SMALLEST_POOL:
        raise _Invalid(
            f"must be a private network from /{LARGEST_POOL} to /{SMALLEST_POOL}, such as {DEFAULT_NETWORK_POOL}; each "
            f"workspace gets {ADDRESSES_PER_WORKSPACE} addresses of it"
        )
    return str(network)


def _parse_network(value: Any) -> ipaddress.IPv4Network:
    try:
        if not isinstance(value, str):
            raise ValueError
        return ipaddress.IPv4Network(value)
    except ValueError:
        raise _Invalid(
            f"must be a network of IPv4, such as 10.0.0.0/8, without further bits; {str(value)[:80]!r} is none"
        ) from None


def _parse_list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_LISTED:
        raise _Invalid(f"must be a list with at most {MAX_LISTED} entries")
    return value


def _parse_refused(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(_parse_network(each)) for each in _parse_list(value)))


def _parse_sources(value: Any) -> tuple[str, ...]:
    listed = _parse_list(value)
    for each in listed:
        if not isinstance(each, str) or len(each) > 255 or not _SOURCE.fullmatch(each):
            raise _Invalid(
                f"must be names of registries, with or without a path, such as registry.example.com/features; "
                f"{str(each)[:80]!r} is none"
            )
    return tuple(dict.fromkeys(listed))


def _parse_pins(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MAX_LISTED:
        raise _Invalid(f"must have at most {MAX_LISTED} entries, a name and a digest each")
    for name, digest in value.items():
        is_name = isinstance(name, str) and len(name) <= 255 and "/" in name and _SOURCE.fullmatch(name)
        if not is_name or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise _Invalid(
                "must have names of features without a version, and the digests of their manifests, such as "
                f"registry.example.com/features/go: sha256:...; {str(name)[:80]!r} has none"
            )
    return tuple(sorted(value.items()))


def _parse_mirrors(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MAX_LISTED:
        raise _Invalid(f"must have at most {MAX_LISTED} entries, a registry and its mirror each")
    for registry, mirror in value.items():
        for each in (registry, str(mirror).removeprefix("http://")):
            if not isinstance(each, str) or len(each) > 255 or not _SOURCE.fullmatch(each):
                raise _Invalid(
                    "must have names of registries, each with the name of its mirror, such as docker.io: "
                    "mirror.example.com/hub, or http://mirror.example.com:5000 for one without TLS; "
                    f"{str(each)[:80]!r} is no name"
                )
        if _LOOPBACK.match(str(mirror).removeprefix("http://")):
            raise _Invalid(
                f"must have mirrors that workspaces reach: {str(mirror)[:80]!r} is this machine only for itself; name "
                "another of its addresses"
            )
    return tuple(sorted((registry, str(mirror)) for registry, mirror in value.items()))


def _parse_limits(value: Any) -> Limits:
    return Limits(**_parse_fields(value, LIMITS, "{memory: 8Gi}"))


def _parse_disk_limits(value: Any) -> DiskLimits:
    return DiskLimits(**_parse_fields(value, DISK_LIMITS, "{bytes: 256Mi}"))


def _parse_fields(value: Any, known: "Mapping[str, tuple[str, Callable[[Any], Any]]]", example: str) -> dict[str, Any]:
    """The values by the names that they have here."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise _Invalid(f"must have some of {', '.join(known)}, such as {example}")
    if unknown := list(_find_unknown(value, known)):
        raise _Invalid(f"has an {unknown[0]}")
    chosen: dict[str, Any] = {}
    for name, given in value.items():
        field_name, parse = known[name]
        try:
            chosen[field_name] = parse(given)
        except _Invalid as error:
            raise _Invalid(f"{name} {error}") from None
    return chosen


def _parse_memory(value: Any) -> int:
    size = parse_size(value) if isinstance(value, str) else None
    if size is None or not MIN_MEMORY_BYTES <= size <= 1 << 50:
        raise _Invalid(f"must be a size of at least {format_size(MIN_MEMORY_BYTES)}, such as 8Gi")
    return size


def _parse_cpus(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0.01 <= value <= 4096:
        raise _Invalid("must be a number from 0.01 to 4096")
    return float(value)


def _parse_processes(value: Any) -> int:
    return _parse_integer(value, MIN_PROCESSES, 1 << 22)


def _parse_disk_bytes(value: Any) -> int:
    """0 is no limit."""
    size = 0 if value == 0 and not isinstance(value, bool) else parse_size(value) if isinstance(value, str) else None
    if size is None or (size and not MIN_DISK_BYTES_PER_SECOND <= size <= 1 << 50):
        least = format_size(MIN_DISK_BYTES_PER_SECOND)
        raise _Invalid(f"must be a size of at least {least} in a second, such as 256Mi, or 0 for no limit")
    return size


def _parse_disk_operations(value: Any) -> int:
    """0 is no limit."""
    if value == 0 and not isinstance(value, bool):
        return 0
    try:
        return _parse_integer(value, MIN_DISK_OPERATIONS, (1 << 32) - 1)
    except _Invalid as error:
        raise _Invalid(f"{error}, or 0 for no limit") from None


def _check_ids(settings: MachineSettings) -> Iterator[str]:
    """Whether there are ids for all workspaces that the pool has networks for."""
    workspaces = ipaddress.IPv4Network(settings.network_pool).num_addresses // ADDRESSES_PER_WORKSPACE
    end = settings.first_uid + workspaces * IDS_PER_WORKSPACE
    needed = f"the {workspaces} workspaces of network_pool need the user ids {settings.first_uid} to {end - 1}"
    if end > END_OF_UIDS:
        yield f"{needed}, and the last one is {END_OF_UIDS - 1}; choose a lower first_uid or a smaller network_pool"
    elif settings.first_uid < RESERVED_UIDS.stop and RESERVED_UIDS.start < end:
        reserved = f"{RESERVED_UIDS.start} to {RESERVED_UIDS.stop - 1}"
        yield f"{needed}, and {reserved} are those of processes of the runner; choose another first_uid"


SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "first_uid": _parse_first_uid,
    "network_pool": _parse_pool,
    "feature_sources": _parse_sources,
    "feature_pins": _parse_pins,
    "registry_mirrors": _parse_mirrors,
    "refused_networks": _parse_refused,
    "max_limits": _parse_limits,
    "disk_limits": _parse_disk_limits,
}
LIMITS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "memory": ("memory_bytes", _parse_memory),
    "cpus": ("cpus", _parse_cpus),
    "processes": ("processes", _parse_processes),
}
DISK_LIMITS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "bytes": ("bytes_per_second", _parse_disk_bytes),
    "operations": ("operations_per_second", _parse_disk_operations),
}
