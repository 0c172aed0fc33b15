"""The numbers of workspaces, from which their user ids and networks follow: each is given once on the whole machine.

Several runners may work on one machine, each with a state folder of its own. Those with the same range of ids and the
same network pool share the numbers; ranges that overlap in any other way are refused. Which runner has which numbers is
in one file of the machine, which is changed under a lock. It is not in a folder that a restart of the machine clears:
the files of workspaces keep their owners.

A number is free when the workspace's `identity.json` is gone, which is removed last, and its network, too. While a
runner has workspaces, its range stays the same: their files and networks have what followed from it.
"""

import fcntl
import ipaddress
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.isolation.network import (
    ADDRESSES_PER_WORKSPACE,
    NAMESPACES,
    network_name,
)
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, list_folders, read_json, write_json
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.process_trees import send_to

FILE = "ranges.json"
MAX_NAMED = 10
"""Workspaces in an error message."""
ADVICE = (
    "choose other ids and another network with first_uid and network_pool in the file of --config; or, if that runner "
    "is not in use any more, remove its folder"
)


@dataclass(frozen=True, slots=True)
class Range:
    """The user ids and the networks that the workspaces of a runner get."""

    first_uid: int
    network_pool: str

    @property
    def size(self) -> int:
        """How many workspaces there are networks for."""
        return ipaddress.IPv4Network(self.network_pool).num_addresses // ADDRESSES_PER_WORKSPACE

    @property
    def end_uid(self) -> int:
        return self.first_uid + self.size * IDS_PER_WORKSPACE

    def overlaps(self, other: "Range") -> bool:
        """Whether a workspace of one could have ids or addresses of one of the other, with another number."""
        has_ids = self.first_uid < other.end_uid and other.first_uid < self.end_uid
        pool = ipaddress.IPv4Network(self.network_pool)
        return self != other and (has_ids or pool.overlaps(ipaddress.IPv4Network(other.network_pool)))

    def __str__(self) -> str:
        return f"the user ids {self.first_uid} to {self.end_uid - 1} and the network {self.network_pool}"


@dataclass(slots=True)
class Claims:
    """What one runner has."""

    range: Range
    numbers: dict[str, int] = field(default_factory=dict)
    """By the folder of the workspace."""


def claim_number(settings: Settings, folder: WorkspaceFolder, is_highest: bool = False) -> int:
    """The number of a workspace: the lowest free one of the machine, or the highest one, then always the same."""
    with lock_ranges(settings):
        number = read_number(folder)
        known = _read(settings)
        own = known.get(name_state(settings))
        is_noted = own is not None and own.range == _range_of(settings) and str(folder.root) in own.numbers
        if number is None or not is_noted:
            known = _claim_range(settings)
            number = read_number(folder)
        if number is not None:
            _require_alone(known, settings, number)
            return number
        own = known[name_state(settings)]
        taken = _list_taken(settings, known)
        numbers = range(own.range.size)
        free = (each for each in (reversed(numbers) if is_highest else numbers) if each not in taken)
        number = next(free, None)
        if number is None:
            raise EngineError(
                Reason.ENGINE_UNAVAILABLE,
                f"the network pool {settings.network_pool} has no part left: {own.range.size} workspaces of this "
                "machine have one; delete workspaces, or choose a larger network_pool in the file of --config",
            )
        own.numbers[str(folder.root)] = number
        _write(settings, known)
        folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(folder.identity, {"number": number})
        return number


def claim_existing(settings: Settings) -> None:
    """Notes the range of this runner, and the numbers that its workspaces have from version 0.2. Raises EngineError if
    another runner has them."""
    with lock_ranges(settings):
        _claim_range(settings)


def check_range(settings: Settings) -> None:
    """Raises EngineError if another runner of this machine has a range that overlaps with this one, or this one has
    workspaces with another range. Writes nothing."""
    _check(settings, _read(settings))


def list_pools(settings: Settings) -> list[str]:
    """The network pools of all runners of this machine."""
    return sorted({settings.network_pool, *(claims.range.network_pool for claims in _read(settings).values())})


def list_numbered(settings: Settings) -> Iterable[WorkspaceFolder]:
    """The folders that have numbers: those of workspaces, and that of the images which all of them use."""
    yield from list_folders(settings.state_folder)
    yield from _list_stores(settings)


def _list_stores(settings: Settings) -> list[WorkspaceFolder]:
    """The folders of pulled images."""
    return [WorkspaceFolder(path) for path in sorted((settings.state_folder / "pulled").glob("*"))]


def read_number(folder: WorkspaceFolder) -> int | None:
    identity = read_json(folder.identity)
    return None if identity is None else int(identity["number"])


def name_state(settings: Settings) -> str:
    return os.path.realpath(settings.state_folder)


@contextmanager
def lock_ranges(settings: Settings) -> Iterator[None]:
    settings.state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.ranges_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(settings.ranges_folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _range_of(settings: Settings) -> Range:
    return Range(settings.first_uid, settings.network_pool)


def _claim_range(settings: Settings) -> dict[str, Claims]:
    """All claims of the machine, with those of this runner as they are now. The caller has the lock."""
    known = _read(settings)
    _check(settings, known)
    for state, claims in known.items():
        claims.numbers = {path: number for path, number in claims.numbers.items() if _is_used(state, path, claims)}
    own_name = name_state(settings)
    known = {state: each for state, each in known.items() if each.numbers or os.path.isdir(state)}
    before = known.get(own_name)
    has_same_range = before is None or before.range == _range_of(settings)
    if not has_same_range:
        for folder in _list_stores(settings):
            _remove_store(folder)
    known[own_name] = Claims(_range_of(settings), before.numbers if before is not None and has_same_range else {})
    for path, number in _list_own(settings).items():
        if _find_other(known, settings, number) is None:  # else the one that was noted first has it
            known[own_name].numbers[path] = number
    _write(settings, known)
    return known


def _remove_store(folder: WorkspaceFolder) -> None:
    """Removes pulled images whose files belong to ids that this runner does not have any more: they are a cache."""
    if (holder := find_holder(folder.holder)) is not None:
        send_to(holder.pid, holder.start_ticks, signal.SIGKILL)
    if subprocess.run(["/bin/rm", "-rf", "--", str(folder.root)], check=False).returncode != 0:
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"pulled images of other user ids in {folder.root} cannot be removed; remove this folder",
        )


def _list_own(settings: Settings) -> dict[str, int]:
    """The numbers that the folders of this runner say, also those that another one has."""
    found = {str(folder.root): read_number(folder) for folder in list_numbered(settings)}
    return {path: number for path, number in found.items() if number is not None}


def _list_taken(settings: Settings, known: dict[str, Claims]) -> set[int]:
    own = _range_of(settings)
    claimed = {number for each in known.values() if each.range == own for number in each.numbers.values()}
    return claimed | set(_list_own(settings).values())


def _find_other(known: dict[str, Claims], settings: Settings, number: int) -> str | None:
    """The folder of another runner's workspace that has this number."""
    for state, claims in known.items():
        if state != name_state(settings) and claims.range == _range_of(settings):
            for path, taken in claims.numbers.items():
                if taken == number:
                    return path
    return None


def _check(settings: Settings, known: dict[str, Claims]) -> None:
    own = _range_of(settings)
    before = known.get(name_state(settings))
    if before is not None and before.range != own and (existing := _list_workspaces(settings)):
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"this runner has workspaces with {before.range}, which cannot get {own}: {', '.join(existing)}; choose "
            f"first_uid {before.range.first_uid} and network_pool {before.range.network_pool} again in the file of "
            "--config, and delete these workspaces before you change them",
        )
    for state, claims in known.items():
        if state != name_state(settings) and os.path.isdir(state) and own.overlaps(claims.range):
            raise EngineError(
                Reason.ENGINE_UNAVAILABLE,
                f"{own} overlap with those of another runner on this machine, whose folder is {state}: "
                f"{claims.range}; {ADVICE}",
            )


def _list_workspaces(settings: Settings) -> list[str]:
    """The uids of those that have numbers; of very many, some."""
    found = [folder.uid for folder in list_folders(settings.state_folder) if read_number(folder) is not None]
    return found if len(found) <= MAX_NAMED else [*found[:MAX_NAMED], f"and {len(found) - MAX_NAMED} more"]


def _require_alone(known: dict[str, Claims], settings: Settings, number: int) -> None:
    """Two runners of version 0.2 gave the same numbers: such workspaces would have a network in common."""
    if (other := _find_other(known, settings, number)) is not None:
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            "the workspace has the user ids and the network of a workspace of another runner on this machine, in "
            f"{other}, because version 0.2 created both; delete one of them",
        )
    own = _range_of(settings)
    if number >= own.size:
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"the network pool {own.network_pool} has no part for this workspace, which began with a larger one; "
            "choose that one again in the file of --config",
        )


def _is_used(state: str, path: str, claims: Claims) -> bool:
    """Also while only its network is left, for example because the folder was removed by hand."""
    folder = WorkspaceFolder(Path(path))
    number = claims.numbers[path]
    first_uid = claims.range.first_uid + number * IDS_PER_WORKSPACE
    return read_number(folder) == number or (NAMESPACES / network_name(Path(state), first_uid)).exists()


def _read(settings: Settings) -> dict[str, Claims]:
    """Raises EngineError for a file that is not readable: to begin anew would give away numbers that are in use."""
    path = settings.ranges_folder / FILE
    if not path.exists():
        return {}
    fields: Any = read_json(path)
    try:
        return {
            state: Claims(Range(int(each["first_uid"]), str(each["network_pool"])), dict(each["numbers"]))
            for state, each in fields.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"{path}: is damaged, and says which runner of this machine has which user ids; stop all workspaces of "
            "the machine, and remove the file",
        ) from None


def _write(settings: Settings, known: dict[str, Claims]) -> None:
    fields = {
        state: {
            "first_uid": claims.range.first_uid,
            "network_pool": claims.range.network_pool,
            "numbers": claims.numbers,
        }
        for state, claims in known.items()
    }
    path = settings.ranges_folder / FILE
    if not path.exists() or read_json(path) != fields:
        write_json(path, fields)
