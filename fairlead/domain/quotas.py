"""What project quotas count: instances by plural, and with the suffix `.active` those that are not sleeping.

Pure. The admission rule and the project controller share it, so that they agree. Other keys (`limits.cpu`,
`count/pods`) apply to the connected clusters and count nothing here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from fairlead.core.objects import Object, get_path
from fairlead.core.user import SERVICE_ACCOUNT_PREFIXES

ACTIVE_SUFFIX = ".active"
USER, TEAM = "user", "team"

FORCE_ANNOTATION = "sleepmode.service.sh/force"
LAST_ACTIVITY_ANNOTATION = "sleepmode.service.sh/last-activity"
SLEEPING_SINCE_ANNOTATION = "sleepmode.service.sh/sleeping-since"
SLEEPING_PHASE = "Sleeping"

QuotaOwner = tuple[str, str]
"""An owner: `user` or `team`, and the name."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII)
_DECIMAL = {"m": Decimal("0.001"), "k": Decimal(10) ** 3}
_UNIT_PREFIXES = "KMGTPE"


def counted_plural(key: str) -> str:
    """The plural that a quota key counts."""
    return key.removesuffix(ACTIVE_SUFFIX)


def parse_limit(quantity: str) -> int:
    """A limit as a whole number. An invalid quantity allows nothing."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        return 0
    number, unit = Decimal(found[1]), found[2] or ""
    if unit.endswith("i"):
        return int(number * 1024 ** (_UNIT_PREFIXES.index(unit[0]) + 1))
    if unit in _DECIMAL or not unit:
        return int(number * _DECIMAL.get(unit, Decimal(1)))
    return int(number * 1000 ** (_UNIT_PREFIXES.index(unit) + 1))


def is_sleeping(obj: Object) -> bool:
    """Whether an instance is sleeping and has not been woken up.

    Only its status counts: an annotation that requests sleep does not free quota, because any user who may update the
    instance can set it. A request to wake up counts at once, so that two concurrent wake-ups see each other.
    """
    if get_path(obj, "status.phase") != SLEEPING_PHASE:
        return False
    noted = get_path(obj, "metadata.annotations")
    annotations = noted if isinstance(noted, dict) else {}
    if annotations.get(FORCE_ANNOTATION) == "true":
        return True
    return not _parse_seconds(annotations.get(LAST_ACTIVITY_ANNOTATION)) > _parse_seconds(
        annotations.get(SLEEPING_SINCE_ANNOTATION)
    )


def _parse_seconds(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def quota_keys(plural: str, obj: Object | None) -> frozenset[str]:
    """The quota keys under which an object counts; empty for None."""
    if obj is None:
        return frozenset()
    return frozenset({plural}) if is_sleeping(obj) else frozenset({plural, f"{plural}{ACTIVE_SUFFIX}"})


def quota_owner(obj: Object | None) -> QuotaOwner | None:
    """The owner that an object counts for. Objects of a team are not counted for its members. The service accounts of a
    namespace count together: who may create one could create any number, each with a quota of its own."""
    for sort in (USER, TEAM):
        name = get_path(obj, f"spec.owner.{sort}")
        if name and isinstance(name, str):
            is_account = sort == USER and name.startswith(SERVICE_ACCOUNT_PREFIXES)
            return sort, name.rpartition(":")[0] if is_account else name
    return None


@dataclass(frozen=True, slots=True)
class ProjectUsage:
    """The usage of a project: per key, in total and by owner."""

    total: Counter[str] = field(default_factory=Counter)
    by_owner: Mapping[QuotaOwner, Counter[str]] = field(default_factory=dict)


def count_usage(objects: Iterable[tuple[str, Object]]) -> ProjectUsage:
    """Counts objects, each passed with the plural of its kind."""
    project: Counter[str] = Counter()
    holders: dict[QuotaOwner, Counter[str]] = {}
    for plural, obj in objects:
        keys = quota_keys(plural, obj)
        project.update(keys)
        owner = quota_owner(obj)
        if owner is not None:
            holders.setdefault(owner, Counter()).update(keys)
    return ProjectUsage(project, holders)


def quota_limits(project: Object, scope: str, plurals: Iterable[str]) -> dict[str, str]:
    """The limits of a project for these kinds. `scope` is `project` or `user`."""
    found = get_path(project, f"spec.quotas.{scope}")
    counted = frozenset(plurals)
    return {key: str(value) for key, value in (found or {}).items() if counted_plural(key) in counted}
