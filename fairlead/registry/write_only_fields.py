"""Keeps write-only fields on update: an update that omits them keeps them, but only for their original purpose.

A credential belongs to its sibling fields: the URL it is sent to, its user, whether the server certificate is verified.
If a requester could change those and keep the credential, the server would send it to a host of the requester's choice.
So a change to any sibling field requires the credential to be sent again, unless the kind exempts the field
(`Kind.safe_siblings`). Values are compared literally. Even an exempt name counts if it is an address: a chart name can
be the full URL of a registry.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from fairlead.core.errors import Problem
from fairlead.core.objects import Object, copied
from fairlead.core.validators import names_a_place
from fairlead.registry.kind import Kind

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS

_ENVELOPE = ("apiVersion", "kind", "metadata", "status", "immutable")
"""Top-level fields that do not affect what a top-level credential is used for."""


def keep_hidden(old: Object, new: Object, kind: Kind) -> list[Problem]:
    """Restores write-only fields in `new` if their siblings are unchanged; returns where they must be sent again.

    An empty value removes a credential, and so does a reference in its place (`passwordRef` for `password`).
    """
    hidden = kind.hidden_in(old)
    problems: list[Problem] = []
    for path in hidden:
        parent, _, name = path.rpartition(".")
        siblings = {each.rpartition(".")[2] for each in hidden if each.rpartition(".")[0] == parent}
        unbound = kind.unbound.get(path, () if parent else _ENVELOPE)
        _Keeping(name, siblings, unbound, problems).carry(old, new, path.split("."), "", True)
    if kind.conceal is not None:
        _put_back(old, new, kind.conceal, kind.concealed)
    return problems


def _put_back(old: Object, new: Object, conceal: Callable[[Object], None], paths: Sequence[str]) -> None:
    """Restores fields that the client sent back as they were served, with redacted content."""
    served = copied(old)
    conceal(served)
    for path in paths:
        *steps, name = path.split(".")
        before, after, redacted = (_below(each, steps) for each in (old, new, served))
        if before and after and redacted and name in before and name in after and after[name] == redacted.get(name):
            after[name] = before[name]


def _below(value: Any, way: Sequence[str]) -> Object | None:
    for step in way:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Restores one write-only field. `write_only_siblings` includes the field itself; `safe_siblings` may change
    freely."""

    name: str
    hidden: set[str]
    unbound: Collection[str]
    problems: list[Problem] = field(repr=False)

    def carry(self, old: Any, new: Any, steps: Sequence[str], at: str, is_same: bool) -> None:
        """`is_same`: whether `old` and `new` are certainly the same item, and not different entries of a list."""
        if isinstance(old, list) and isinstance(new, list):
            for before, after, same in _pairs(old, new, steps):
                self.carry(old[before], new[after], steps, f"{at}[{after}]", is_same and same)
        elif isinstance(old, dict) and isinstance(new, dict) and steps[0] in old:
            place = f"{at}.{steps[0]}" if at else steps[0]
            if len(steps) == 1:
                self._keep(old, new, place, is_same)
            elif steps[0] in new:
                self.carry(old[steps[0]], new[steps[0]], steps[1:], place, is_same)

    def _keep(self, old: Object, new: Object, place: str, is_same: bool) -> None:
        if self.name in new or new.get(f"{self.name}Ref"):
            return
        changed = self._changed(old, new)
        if not changed:
            new[self.name] = old[self.name]
        elif is_same and old[self.name]:
            parent = place.removesuffix(self.name)
            reason = (
                f"must be sent again because {', '.join(f'{parent}{each}' for each in changed)} changed: a write-only "
                "credential is not kept for another destination. Send the value, or an empty one to remove it"
            )
            self.problems.append(Problem.required(place, reason))

    def _changed(self, old: Object, new: Object) -> list[str]:
        names = sorted({*old, *new} - self.hidden)
        changed = (name for name in names if (old.get(name) or None) != (new.get(name) or None))
        return [name for name in changed if name not in self.unbound or _leads_away(name, old, new)]


def _leads_away(name: str, *structures: Object) -> bool:
    return any(names_a_place(name, each.get(name)) for each in structures)


def _pairs(old: Sequence[Any], new: Sequence[Any], steps: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Matches the entries of two lists, and tells whether each match is certain.

    Unchanged entries match first, then entries with the same name, then those at the same index.
    """
    left, right = dict(enumerate(old)), dict(enumerate(new))
    identities: tuple[Callable[[Any], Any], ...] = (partial(_bare, steps=steps), _called)
    for identify in identities:
        indexes: dict[bytes, list[int]] = {}
        for index in reversed(left):
            if (identity := identify(left[index])) is not None:
                indexes.setdefault(orjson.dumps(identity, option=_SORTED), []).append(index)
        for index, entry in list(right.items()):
            identity = identify(entry)
            found = indexes.get(orjson.dumps(identity, option=_SORTED)) if identity is not None else None
            if found:
                before = found.pop()
                del left[before], right[index]
                yield before, index, True
    for index in right:
        if index in left:
            yield index, index, False


def _called(entry: Any) -> Any:
    """What identifies an entry: its name, or its version if it has no name."""
    if not isinstance(entry, dict):
        return None
    name = entry.get("name")
    return ["name", name, entry.get("releaseName")] if name else ["version", entry.get("version")]


def _bare(value: Any, steps: Sequence[str]) -> Any:
    """The value without the field at the path, for comparison."""
    if isinstance(value, list):
        return [_bare(each, steps) for each in value]
    if not isinstance(value, dict) or steps[0] not in value:
        return value
    rest = {name: each for name, each in value.items() if name != steps[0]}
    return rest if len(steps) == 1 else {**rest, steps[0]: _bare(value[steps[0]], steps[1:])}
