"""What project quotas count: instances by plural, and with the suffix `.active` those that are not sleeping.

Pure. The admission rule and the project controller share it, so that they agree. Other keys (`limits.cpu`,
`count/pods`) apply to the connected clusters and count nothing here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from fairlead.core.objects import Object, dig

ACTIVE = ".active"
USER, TEAM = "user", "team"

FORCE = "sleepmode.service.sh/force"
LAST_ACTIVITY = "sleepmode.service.sh/last-activity"
SLEEPING_SINCE = "sleepmode.service.sh/sleeping-since"
SLEEPING = "Sleeping"

Holder = tuple[str, str]
"""An owner: `user` or `team`, and the name."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII)
_DECIMAL = {"m": Decimal("0.001"), "k": Decimal(10) ** 3}
_STEPS = "KMGTPE"


def plural_of(key: str) -> str:
    """The plural that a quota key counts."""
    return key.removesuffix(ACTIVE)


def amount(quantity: str) -> int:
    """A limit as a whole number. An invalid quantity allows nothing."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        return 0
    number, unit = Decimal(found[1]), found[2] or ""
    if unit.endswith("i"):
        return int(number * 1024 ** (_STEPS.index(unit[0]) + 1))
    if unit in _DECIMAL or not unit:
        return int(number * _DECIMAL.get(unit, Decimal(1)))
    return int(number * 1000 ** (_STEPS.index(unit) + 1))


def asleep(obj: Object) -> bool:
    """Whether an instance is sleeping and has not been woken up.

    Only its status counts: an annotation that requests sleep does not free quota, because any user who may update the
    instance can set it. A request to wake up counts at once, so that two concurrent wake-ups see each other.
    """
    if dig(obj, "status.phase") != SLEEPING:
        return False
    noted = dig(obj, "metadata.annotations")
    annotations = noted if isinstance(noted, dict) else {}
    if annotations.get(FORCE) == "true":
        return True
    return not _seconds(annotations.get(LAST_ACTIVITY)) > _seconds(annotations.get(SLEEPING_SINCE))


def _seconds(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def keys_of(plural: str, obj: Object | None) -> frozenset[str]:
    """The quota keys under which an object counts; empty for None."""
    if obj is None:
        return frozenset()
    return frozenset({plural}) if asleep(obj) else frozenset({plural, f"{plural}{ACTIVE}"})


def holder_of(obj: Object | None) -> Holder | None:
    """The owner of an object. Objects of a team are not counted for its members."""
    for sort in (USER, TEAM):
        name = dig(obj, f"spec.owner.{sort}")
        if name and isinstance(name, str):
            return sort, name
    return None


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a project: per key, in total and by owner."""

    project: Counter[str] = field(default_factory=Counter)
    holders: Mapping[Holder, Counter[str]] = field(default_factory=dict)


def usage(objects: Iterable[tuple[str, Object]]) -> Usage:
    """Counts objects, each passed with the plural of its kind."""
    project: Counter[str] = Counter()
    holders: dict[Holder, Counter[str]] = {}
    for plural, obj in objects:
        keys = keys_of(plural, obj)
        project.update(keys)
        holder = holder_of(obj)
        if holder is not None:
            holders.setdefault(holder, Counter()).update(keys)
    return Usage(project, holders)


def limits(project: Object, whose: str, plurals: Iterable[str]) -> dict[str, str]:
    """The limits of a project for these kinds. `scope` is `project` or `user`."""
    found = dig(project, f"spec.quotas.{whose}")
    counted = frozenset(plurals)
    return {key: str(value) for key, value in (found or {}).items() if plural_of(key) in counted}
