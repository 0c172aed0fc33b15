"""Labels and annotations that say whose something is are not their holders' to change.

Tools find objects by them, and what is found by them is trusted. So a mark that has been set stays as it is for
everybody but administrators, and the namespaces of projects are theirs alone: a namespace that could be relabelled
could be moved into another project.

Some marks only the server sets (`SERVER_MARKS`, all of them): from anybody but administrators they are dropped with a
warning where an object has none yet, on create, update, patch and apply alike. It is not refused, because people make
new objects out of what they have read. Where one is set, it stays like all others. Marks with rules of
their own are in other files: `service.sh/trusted` (`template_trust.py`), `service.sh/abandon` (`abandoning.py`),
`service.sh/cooldown-seconds` (`own_keys.py`).
"""

from collections.abc import Iterator

from fairlead.admission.chain import Rule, concerning
from fairlead.admission.project_namespace import PROJECT_LABEL
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.kinds.agent import AGENT
from fairlead.kinds.components import KEY_ANNOTATION
from fairlead.kinds.runner import RUNNER_COMPONENT
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
SERVER_MARKS = (
    ("annotations", "service.sh/runner-endpoint"),  # where clients of a workspace go with their keys
    ("labels", RUNNER_COMPONENT.label),  # which runner a key is of
    ("labels", AGENT.label),  # which cluster's agent a key is of
    ("annotations", KEY_ANNOTATION),  # which access key a Secret has the value of
    ("labels", UID_LABEL),  # which service account a token is of
    ("annotations", "service.sh/default-rules"),  # which rules the server gave a default role
    ("annotations", "service.sh/unlisted-clusters"),  # what projects without a list of clusters may use
    ("labels", "service.sh/managed"),  # what the server itself has made
    ("labels", "service.sh/uid"),  # for which instance
)
"""Marks that code of this server, or clients of it, act upon, and that nobody else has to set."""
_DESCRIPTION = ("labels", "annotations")


def ownership_marks(namespace_prefix: str) -> Rule:
    """The rule, for projects whose namespaces begin with this."""

    @concerning(lambda kind, verb: verb != "delete")
    async def rule(change: Change, registry: Registry) -> None:
        if change.user.holds_everything or change.arriving:
            return
        _drop_server_marks(change)
        if change.old is None:
            return
        for what in _taken_away(change, namespace_prefix):
            why = f"{what} says whose this is, and only administrators change that"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule


def _drop_server_marks(change: Change) -> None:
    is_namespace = (change.kind.group, change.kind.plural) == NAMESPACES
    marks = (*SERVER_MARKS, ("labels", PROJECT_LABEL)) if is_namespace else SERVER_MARKS
    for part in _DESCRIPTION:
        asked = _part(change.obj, part)
        known = _part(change.old, part) if asked and change.old is not None else {}
        found = [key for where, key in marks if where == part and key in asked and key not in known]
        if not found:
            continue
        kept = {key: value for key, value in asked.items() if key not in found}
        metadata(change.obj)[part] = kept
        if not kept:
            del metadata(change.obj)[part]
        change.warnings.extend(f"metadata.{part}[{key}] is set by the server only; it was left out" for key in found)


def _taken_away(change: Change, namespace_prefix: str) -> Iterator[str]:
    """Which marks a change would alter."""
    old, new = change.old or {}, change.obj
    if (change.kind.group, change.kind.plural) == NAMESPACES and name_of(new).startswith(namespace_prefix):
        yield from (f"metadata.{part}" for part in _DESCRIPTION if _part(old, part) != _part(new, part))
    for part, key in dict.fromkeys((*MARKS, *SERVER_MARKS)):
        before = _part(old, part).get(key)
        if before is not None and before != _part(new, part).get(key):
            yield f"metadata.{part}[{key}]"


def _part(obj: Object, part: str) -> Object:
    """Labels or annotations; whatever else stands there is refused for that."""
    found = dig(obj, f"metadata.{part}")
    return found if isinstance(found, dict) else {}
