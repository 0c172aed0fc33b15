"""What the server keeps for itself (hashes of passwords, keys of runners, signing keys) is written by the server alone.

Its secret fields are in no answer, whoever asks; so nobody could send them back rightly either, and whoever could put
others in their place could sign in as somebody else. Administrators may label it, and whoever may delete it can do so:
that lets nobody in.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, concerning, is_one_of
from fairlead.admission.namespaces import PROJECT_LABEL
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.domain.quotas import SLEEPING
from fairlead.kinds.access.components import KEY_ANNOTATION
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core.service_account import UID_LABEL
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


@concerning(lambda kind, verb: verb != "delete" and kind.has_servers_own)
async def servers_own(change: Change, registry: Registry) -> None:
    kind, old, new = change.kind, change.old, change.new
    if new is None or change.user == CONTROLLER or not (kind.is_the_servers(new) or kind.is_the_servers(old or {})):
        return
    same = old is not None and all(dig(old, path) == dig(new, path) for path in kind.secret)
    if not (same and change.user.holds_everything):
        why = "the server keeps it for itself; choose another type for a secret of your own"
        raise Forbidden.of(kind.plural, kind.group, name_of(new), why)


# DOC-MERGED admission/reported_status
# What the server found out about clusters, spaces and virtual clusters is written by the server alone.
#
# Its controllers go by this status: it says what is rendered and to be deployed with the credential that is stored for a
# cluster, whose a namespace is, and where a gateway leads. So nobody else writes it, whatever rights they hold on
# `status`, but administrators, who could have the credential itself.
#
# Of a workspace, others may write the status, too. But that it sleeps, and so needs no room in quotas, is its runner's
# word.


PLURALS = ("clusters", "spaceinstances", "virtualclusterinstances")
WORKSPACES = "devpodworkspaceinstances"


def reported_status(api_group: str) -> Rule:
    @concerning(lambda kind, verb: verb == "update" and is_one_of(kind, api_group, *PLURALS, WORKSPACES))
    async def rule(change: Change, registry: Registry) -> None:
        free = change.user == CONTROLLER or change.user.holds_everything
        if change.subresource != "status" or free or change.new is None:
            return
        if change.kind.plural == WORKSPACES:
            _check_sleep(change)
        elif (change.old or {}).get("status") != change.new.get("status"):
            why = "its status is what the server found out, and is written by the server; change its spec instead"
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.new), why)

    return rule


def _check_sleep(change: Change) -> None:
    before, after = dig(change.old, "status.phase"), dig(change.new, "status.phase")
    if after == SLEEPING and before != SLEEPING and RUNNER_COMPONENT.group not in change.user.groups:
        why = "that it sleeps is said by its runner; ask for that with the annotation sleepmode.service.sh/force"
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


# DOC-MERGED admission/ownership_marks
# Labels and annotations that say whose something is are not their holders' to change.
#
# Tools find objects by them, and what is found by them is trusted. So a mark that has been set stays as it is for
# everybody but administrators, and the namespaces of projects are theirs alone: a namespace that could be relabelled
# could be moved into another project.
#
# Some marks only the server sets (`SERVER_MARKS`, all of them): from anybody but administrators they are dropped with a
# warning where an object has none yet, on create, update, patch and apply alike. It is not refused, because people make
# new objects out of what they have read. Where one is set, it stays like all others. Marks with rules of
# their own are in other files: `service.sh/trusted` (`templates.py`), `service.sh/abandon` (`instances.py`),
# `service.sh/cooldown-seconds` (`access_key_limits.py`).


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
