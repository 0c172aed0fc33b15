"""Warns about references to objects that do not exist, so that a typo does not disable something silently.

The write is accepted: manifests are applied in any order, and users may be created by their first login. Only
references that the change adds are checked. `reference_fields.py` finds them.

A warning must not reveal whether an object exists that the requester may not read. Requesters get warnings only about
names that they may `get`. References that are useless to those who may not read the object (scopes of access keys) are
the exception: there, the warning is the same for missing and for unreadable objects. Suggested are only names that the
requester may get.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.admission.reference_fields import (
    Reference,
    Subject,
    instance_cluster_references,
    key_scope_references,
    owner_and_access_references,
    project_references,
    team_references,
)
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.suggestions import did_you_mean, near_names
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import Change, Kind
from fairlead.registry.names import MAX_LABEL_LENGTH
from fairlead.registry.registry import Registry

MAX_WARNINGS = 5
"""How many missing objects one response reports."""
MAX_SUGGESTION_CANDIDATES = 1_000
"""If there are more objects, none of them is suggested: the comparison runs on the event loop."""

FindReferences = Callable[[Change, Subject], Iterable[Reference]]


def warn_missing_references(authorize: Authorize, api_group: str, namespace_prefix: str) -> Rule:
    """Warns about owners, members, access rules, allow lists, clusters and scopes with names of missing objects."""
    subject = Subject(api_group, namespace_prefix)

    @applies_to(lambda kind, verb: verb != "delete" and bool(_finders(kind, api_group)))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        found = (each for find in _finders(change.kind, api_group) for each in find(change, subject))
        missing = (each for each in found if _is_missing(each, change.user, registry, authorize))
        for each in islice(missing, MAX_WARNINGS):
            change.warnings.append(_describe(each, change.user, registry, authorize))

    return rule


def _finders(kind: Kind, api_group: str) -> list[FindReferences]:
    by_plural: dict[str, FindReferences] = {
        "projects": project_references,
        "teams": team_references,
        "ownedaccesskeys": key_scope_references,
        "spaceinstances": instance_cluster_references,
        "virtualclusterinstances": instance_cluster_references,
    }
    found = [find for plural, find in by_plural.items() if is_resource(kind, api_group, plural)]
    return [owner_and_access_references, *found] if kind.has_access_entries else found


def _is_missing(reference: Reference, user: User, registry: Registry, authorize: Authorize) -> bool:
    if reference.name in reference.builtin:
        return False
    exists = registry.resource(reference.group, reference.plural).get_cached(reference.namespace, reference.name)
    if reference.must_be_readable:
        return exists is None or not _may_read(reference, reference.name, user, authorize)
    return exists is None and _may_read(reference, reference.name, user, authorize)


def _may_read(reference: Reference, name: str, user: User, authorize: Authorize) -> bool:
    return any(
        authorize(
            user,
            RequestInfo(
                verb=verb,
                group=reference.group,
                version="v1",
                resource=reference.plural,
                namespace=reference.namespace,
                name=name,
            ),
        ).allowed
        for verb in reference.verbs
    )


def _describe(reference: Reference, user: User, registry: Registry, authorize: Authorize) -> str:
    readable = " that you can read" if reference.must_be_readable else ""
    what = f'{reference.path}: there is no {reference.noun} "{reference.name}"{readable}'
    near = near_names(reference.name, _candidates(reference, registry))
    readable_names = (each for each in near if each in reference.builtin or _may_read(reference, each, user, authorize))
    return f"{what}; {reference.effect}{did_you_mean(next(readable_names, ''))}"


def _candidates(reference: Reference, registry: Registry) -> list[str]:
    view, place = registry.view, (reference.group, reference.plural, reference.namespace)
    if len(reference.name) > MAX_LABEL_LENGTH or view.count(*place) > MAX_SUGGESTION_CANDIDATES:
        return list(reference.builtin)
    return [*reference.builtin, *(entry.key[3] for entry in view.entries(*place))]
