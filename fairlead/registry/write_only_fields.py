"""Hidden fields over an update: who updates has never seen them, so what is not mentioned stays, but only for what it
was given for.

A credential is bound to what stands beside it: the address that it is sent to, the user that it belongs to, whether the
certificate of the other side is verified. If somebody could change those and keep the credential, it would be theirs:
the server would send it wherever they say. So every field of the same structure binds it, unless the kind says that it
may change (`Kind.unbound`), and values are compared as they are written: there is no other spelling of the same host.
Even a name binds it that is an address: a chart can be named by the whole address of a registry.
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
"""What stands beside a field of the object itself and says nothing of what it is for."""


def keep_hidden(old: Object, new: Object, kind: Kind) -> list[Problem]:
    """Carries hidden fields over into `new` where what binds them is unchanged; tells where they must be sent again.

    An empty value takes a credential away, and so does a reference in its place (`passwordRef` for `password`).
    """
    hidden = kind.hidden_in(old)
    problems: list[Problem] = []
    for path in hidden:
        parent, _, name = path.rpartition(".")
        beside = {each.rpartition(".")[2] for each in hidden if each.rpartition(".")[0] == parent}
        unbound = kind.unbound.get(path, () if parent else _ENVELOPE)
        _Keeping(name, beside, unbound, problems).carry(old, new, path.split("."), "", True)
    if kind.conceal is not None:
        _put_back(old, new, kind.conceal, kind.concealed)
    return problems


def _put_back(old: Object, new: Object, conceal: Callable[[Object], None], paths: Sequence[str]) -> None:
    """Whoever sends back what was shown has not meant to change it."""
    shown = copied(old)
    conceal(shown)
    for path in paths:
        *way, name = path.split(".")
        was, now, meant = (_below(each, way) for each in (old, new, shown))
        if was and now and meant and name in was and name in now and now[name] == meant.get(name):
            now[name] = was[name]


def _below(value: Any, way: Sequence[str]) -> Object | None:
    for step in way:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class _Keeping:
    """The carrying over of one field. `hidden` are all such fields beside it, itself among them, and `unbound` those
    that may change, too."""

    name: str
    hidden: set[str]
    unbound: Collection[str]
    problems: list[Problem] = field(repr=False)

    def carry(self, old: Any, new: Any, steps: Sequence[str], at: str, is_same: bool) -> None:
        """`is_same`: whether the two are one thing before and after, or an entry of a list that may be another one."""
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
            why = (
                f"must be sent again because {', '.join(f'{parent}{each}' for each in changed)} changed: a credential "
                "that nobody can read is not handed on to another place. Send the value, or an empty one for none"
            )
            self.problems.append(Problem.required(place, why))

    def _changed(self, old: Object, new: Object) -> list[str]:
        names = sorted({*old, *new} - self.hidden)
        changed = (name for name in names if (old.get(name) or None) != (new.get(name) or None))
        return [name for name in changed if name not in self.unbound or _leads_away(name, old, new)]


def _leads_away(name: str, *structures: Object) -> bool:
    return any(names_a_place(name, each.get(name)) for each in structures)


def _pairs(old: Sequence[Any], new: Sequence[Any], steps: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Which entry of the one list is which of the other, and whether that is certain: first those that are unchanged,
    then those that are called the same, then those in the same place."""
    left, right = dict(enumerate(old)), dict(enumerate(new))
    marks: tuple[Callable[[Any], Any], ...] = (partial(_bare, steps=steps), _called)
    for identify in marks:
        places: dict[bytes, list[int]] = {}
        for index in reversed(left):
            if (mark := identify(left[index])) is not None:
                places.setdefault(orjson.dumps(mark, option=_SORTED), []).append(index)
        for index, entry in list(right.items()):
            mark = identify(entry)
            found = places.get(orjson.dumps(mark, option=_SORTED)) if mark is not None else None
            if found:
                before = found.pop()
                del left[before], right[index]
                yield before, index, True
    for index in right:
        if index in left:
            yield index, index, False


def _called(entry: Any) -> Any:
    """What an entry is told by: its name, and its version where it has none."""
    if not isinstance(entry, dict):
        return None
    name = entry.get("name")
    return ["name", name, entry.get("releaseName")] if name else ["version", entry.get("version")]


def _bare(value: Any, steps: Sequence[str]) -> Any:
    """The value without what stands at the steps below it, for comparison."""
    if isinstance(value, list):
        return [_bare(each, steps) for each in value]
    if not isinstance(value, dict) or steps[0] not in value:
        return value
    rest = {name: each for name, each in value.items() if name != steps[0]}
    return rest if len(steps) == 1 else {**rest, steps[0]: _bare(value[steps[0]], steps[1:])}
