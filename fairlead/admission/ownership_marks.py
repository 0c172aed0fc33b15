"""Labels and annotations that say whose something is are not their holders' to change.

Tools find objects by them, and what is found by them is trusted. So a mark that has been set stays as it is for
everybody but administrators, and the namespaces of projects are theirs alone: a namespace that could be relabelled
could be moved into another project.
"""

from collections.abc import Iterator

from fairlead.admission.chain import Rule, concerning
from fairlead.admission.project_namespace import PROJECT_LABEL
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, name_of
from fairlead.kinds.serviceaccount import UID_LABEL
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

MARKS = (
    ("labels", PROJECT_LABEL),
    ("labels", "service.sh/workspace-uid"),
    ("labels", "service.sh/runner"),
    ("labels", UID_LABEL),
    ("annotations", "service.sh/runner-endpoint"),
)
_DESCRIPTION = ("labels", "annotations")


def ownership_marks(namespace_prefix: str) -> Rule:
    """The rule, for projects whose namespaces begin with this."""

    @concerning(lambda kind, verb: verb == "update")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user.holds_everything:
            return
        for what in _taken_away(change, namespace_prefix):
            why = f"{what} says whose this is, and only administrators change that"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _taken_away(change: Change, namespace_prefix: str) -> Iterator[str]:
    """Which marks a change would alter."""
    old, new = change.old or {}, change.obj
    if (change.kind.group, change.kind.plural) == NAMESPACES and name_of(new).startswith(namespace_prefix):
        yield from (f"metadata.{part}" for part in _DESCRIPTION if _part(old, part) != _part(new, part))
    for part, key in MARKS:
        before = _part(old, part).get(key)
        if before is not None and before != _part(new, part).get(key):
            yield f"metadata.{part}[{key}]"


def _part(obj: Object, part: str) -> Object:
    """Labels or annotations; whatever else stands there is refused for that."""
    found = dig(obj, f"metadata.{part}")
    return found if isinstance(found, dict) else {}
