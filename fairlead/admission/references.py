"""Warns about references to objects that do not exist, so that a typo does not disable something silently.

The write is accepted: manifests are applied in any order, and users may be created by their first login. Only
references that the change adds are checked.

A warning must not reveal whether an object exists that the requester may not read. Requesters get warnings only about
names that they may `get`. References that are useless to those who may not read the object (scopes of access keys) are
the exception: there, the warning is the same for missing and for unreadable objects. Suggested are only names that the
requester may get.

References that the server reports in the conditions of the object are not here: templates, runners and Secrets that
instances, clusters and runners name. The clusters of instances are an exception: a requester who does not wait for the
object would not see the condition. Users, teams and verbs of `spec.access` are not here either: as with the rules of
RBAC, anything may be written there, without a warning.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.objects import get_path, metadata
from fairlead.core.scope import ANY
from fairlead.core.suggestions import did_you_mean, near_names
from fairlead.core.user import CONTROLLER_USER, TEAM_GROUP_PREFIX, User
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.preset import WORKSPACE_PRESET
from fairlead.kinds.instances.templates import ENVIRONMENT_TEMPLATE
from fairlead.kinds.rbac.roles import GROUP as RBAC_GROUP
from fairlead.registry.kind import Change, Kind
from fairlead.registry.names import MAX_LABEL_LENGTH
from fairlead.registry.registry import Registry

PROJECT_ROLES = ("admin", "user", "viewer")
"""The roles of project members that are no ClusterRoles."""
_PRINCIPALS = {"user": "users", "team": "teams"}
_ACCESS_FIELDS = ("spec.extraAccessRules", "spec.template.access.rules")
_TEMPLATE_KINDS = {
    **{instance.template_kind: instance.templates for instance in TEMPLATE_INSTANCES.values()},
    ENVIRONMENT_TEMPLATE.name: ENVIRONMENT_TEMPLATE.plural,
    WORKSPACE_PRESET.name: WORKSPACE_PRESET.plural,
}
_ALLOW_LISTS = {"allowedClusters": ("clusters", "cluster"), "allowedRunners": ("runners", "runner")}
_SCOPE_EFFECT = "the entry allows nothing until there is one"


@dataclass(frozen=True, slots=True)
class Subject:
    """Where the references are: the API group and the prefix of project namespaces."""

    api_group: str
    namespace_prefix: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A field that names an object. `effect` says what happens while there is no such object."""

    path: str
    group: str
    plural: str
    noun: str
    name: str
    effect: str
    namespace: str = ""
    builtin: tuple[str, ...] = ()
    """Names that are valid without an object."""
    must_be_readable: bool = False
    """Whether the reference is useless if the requester may not read the object."""
    verbs: tuple[str, ...] = ("get",)
    """The verbs of which the requester needs one to know about the object."""


def owner_and_access_references(change: Change, subject: Subject) -> Iterator[Reference]:
    owner = get_path(change.new, "spec.owner")
    owner_before = get_path(change.old, "spec.owner")
    for kind in _PRINCIPALS if owner != owner_before else ():
        name = get_path(owner, kind)
        if name != get_path(owner_before, kind):
            yield from _principals(
                f"spec.owner.{kind}", kind, [name], subject, f"the object has no owner until that {kind} exists"
            )
    for field in _ACCESS_FIELDS:
        entries = get_path(change.new, field)
        if not entries:
            continue
        before = _access_names(get_path(change.old, field))
        for index, entry in _entries(entries):
            for kind, plural in _PRINCIPALS.items():
                added = [name for name in _strings(entry.get(plural)) if (kind, name) not in before]
                effect = f"the entry grants nothing until that {kind} exists"
                yield from _principals(f"{field}[{index}].{plural}", kind, added, subject, effect)


def _access_names(entries: Any) -> set[tuple[str, str]]:
    return {
        (kind, name)
        for _, entry in _entries(entries)
        for kind, plural in _PRINCIPALS.items()
        for name in _strings(entry.get(plural))
    }


def project_references(change: Change, subject: Subject) -> Iterator[Reference]:
    before = get_path(change.old, "spec.members")
    members = {(entry.get("kind"), entry.get("name")) for _, entry in _entries(before)}
    roles = {entry.get("clusterRole") for _, entry in _entries(before)}
    for index, entry in _entries(get_path(change.new, "spec.members")):
        path = f"spec.members[{index}]"
        kind = entry.get("kind")
        name = entry.get("name")
        role = entry.get("clusterRole")
        if (kind, name) not in members:
            effect = "it is a member as soon as it exists"
            yield from _principals(f"{path}.name", str(kind).lower(), [name], subject, effect)
        if isinstance(role, str) and role and role not in roles:
            roles_there_are = ", ".join(PROJECT_ROLES)
            effect = f"the member has no permissions until it exists; the roles of each project are {roles_there_are}"
            yield Reference(
                path=f"{path}.clusterRole",
                group=RBAC_GROUP,
                plural="clusterroles",
                noun="project role or ClusterRole",
                name=role,
                effect=effect,
                builtin=PROJECT_ROLES,
            )
    yield from _allow_list_references(change, subject)


def _allow_list_references(change: Change, subject: Subject) -> Iterator[Reference]:
    for field, (plural, noun) in _ALLOW_LISTS.items():
        before = {entry.get("name") for _, entry in _entries(get_path(change.old, f"spec.{field}"))}
        for index, entry in _entries(get_path(change.new, f"spec.{field}")):
            name = entry.get("name")
            if _is_name(name) and name not in before:
                effect = "the entry allows nothing until it exists"
                yield Reference(
                    path=f"spec.{field}[{index}].name",
                    group=subject.api_group,
                    plural=plural,
                    noun=noun,
                    name=name,
                    effect=effect,
                    verbs=("get", "use"),
                )
    known = {
        (each.get("kind"), each.get("name")) for _, each in _entries(get_path(change.old, "spec.allowedTemplates"))
    }
    for index, entry in _entries(get_path(change.new, "spec.allowedTemplates")):
        kind = entry.get("kind")
        name = entry.get("name")
        if _is_name(name) and kind in _TEMPLATE_KINDS and (kind, name) not in known:
            path, effect = f"spec.allowedTemplates[{index}].name", "the entry allows nothing until it exists"
            yield Reference(
                path=path, group=subject.api_group, plural=_TEMPLATE_KINDS[kind], noun=kind, name=name, effect=effect
            )


def team_references(change: Change, subject: Subject) -> Iterator[Reference]:
    before = set(_strings(get_path(change.old, "spec.users")))
    added = [name for name in _strings(get_path(change.new, "spec.users")) if name not in before]
    return _principals("spec.users", "user", added, subject, "it is a member as soon as it exists")


def binding_references(change: Change, subject: Subject) -> Iterator[Reference]:
    """The users, teams and role of a RoleBinding in a project. A team is the group `service:team:NAME`. Elsewhere
    bindings are answered as Kubernetes answers them, without a warning."""
    if not str(metadata(change.obj).get("namespace") or "").startswith(subject.namespace_prefix):
        return
    before = {(entry.get("kind"), entry.get("name")) for _, entry in _entries(get_path(change.old, "subjects"))}
    for index, entry in _entries(get_path(change.new, "subjects")):
        name = entry.get("name")
        if (entry.get("kind"), name) in before or not isinstance(name, str):
            continue
        kind = "user" if entry.get("kind") == "User" else "team"
        is_team = entry.get("kind") == "Group" and name.startswith(TEAM_GROUP_PREFIX)
        if kind == "user" or is_team:
            effect = f"the binding gives it nothing until that {kind} exists"
            names = [name.removeprefix(TEAM_GROUP_PREFIX) if is_team else name]
            yield from _principals(f"subjects[{index}].name", kind, names, subject, effect)
    role = get_path(change.new, "roleRef")
    if isinstance(role, dict) and role != get_path(change.old, "roleRef") and _is_name(role.get("name")):
        is_namespaced = role.get("kind") == "Role"
        yield Reference(
            path="roleRef.name",
            group=RBAC_GROUP,
            plural="roles" if is_namespaced else "clusterroles",
            noun="Role" if is_namespaced else "ClusterRole",
            name=role["name"],
            effect="the binding grants nothing until it exists",
            namespace=metadata(change.obj).get("namespace", "") if is_namespaced else "",
        )


def instance_cluster_references(change: Change, subject: Subject) -> Iterator[Reference]:
    """The cluster of a space or a virtual cluster."""
    name = get_path(change.new, "spec.clusterRef.cluster")
    if name == get_path(change.old, "spec.clusterRef.cluster") or not _is_name(name):
        return
    if get_path(change.new, "spec.external") is True:
        effect = "the virtual cluster cannot be reached there until it is connected"
    else:
        effect = "nothing is deployed until it is connected"
    path, verbs = "spec.clusterRef.cluster", ("get", "use")
    yield Reference(
        path=path, group=subject.api_group, plural="clusters", noun="cluster", name=name, effect=effect, verbs=verbs
    )


def key_scope_references(change: Change, subject: Subject) -> Iterator[Reference]:
    scope = get_path(change.new, "spec.scope")
    if scope == get_path(change.old, "spec.scope"):
        return
    for index, entry in _entries(scope, "projects"):
        yield from _scope_project(f"spec.scope.projects[{index}].project", entry.get("project"), subject)
    for field in ("clusters", "rules"):
        for index, entry in _entries(scope, field):
            if _is_name(name := entry.get("cluster")):
                yield Reference(
                    path=f"spec.scope.{field}[{index}].cluster",
                    group=subject.api_group,
                    plural="clusters",
                    noun="cluster",
                    name=name,
                    effect=_SCOPE_EFFECT,
                    must_be_readable=True,
                    verbs=("get", "use"),
                )
    yield from _scope_instances(scope, subject)


def _scope_project(path: str, name: Any, subject: Subject) -> Iterator[Reference]:
    if _is_name(name):
        yield Reference(
            path=path,
            group=subject.api_group,
            plural="projects",
            noun="project",
            name=name,
            effect=_SCOPE_EFFECT,
            must_be_readable=True,
        )


def _scope_instances(scope: Any, subject: Subject) -> Iterator[Reference]:
    """The spaces and virtual clusters of a scope."""
    fields = (
        ("spaces", "space", "spaceinstances", "space"),
        ("virtualClusters", "virtualCluster", "virtualclusterinstances", "virtual cluster"),
    )
    for field, name_field, plural, noun in fields:
        for index, entry in _entries(scope, field):
            project = entry.get("project")
            name = entry.get(name_field)
            if name == ANY:
                yield from _scope_project(f"spec.scope.{field}[{index}].project", project, subject)
            elif _is_name(project) and _is_name(name):
                yield Reference(
                    path=f"spec.scope.{field}[{index}].{name_field}",
                    group=subject.api_group,
                    plural=plural,
                    noun=f'{noun} in the project "{project}" called',
                    name=name,
                    effect=_SCOPE_EFFECT,
                    namespace=f"{subject.namespace_prefix}{project}",
                    must_be_readable=True,
                    verbs=("get", "use"),
                )


def _principals(path: str, kind: str, names: Iterable[Any], subject: Subject, effect: str) -> Iterator[Reference]:
    """References to users or teams. A name with a colon is that of a service account or component, not of an object."""
    for name in names:
        if _is_name(name) and ":" not in name and kind in _PRINCIPALS:
            yield Reference(
                path=path, group=subject.api_group, plural=_PRINCIPALS[kind], noun=kind, name=name, effect=effect
            )


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value not in ("", ANY)


def _entries(value: Any, field: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects in a list, or in a list in a field, with their positions."""
    found = value.get(field) if field and isinstance(value, dict) else value
    if isinstance(found, list):
        yield from ((index, each) for index, each in enumerate(found) if isinstance(each, dict))


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


MAX_WARNINGS = 5
"""How many missing objects one response reports."""
MAX_SUGGESTION_CANDIDATES = 1_000
"""If there are more objects, none of them is suggested: the comparison runs on the event loop."""

FindReferences = Callable[[Change, Subject], Iterable[Reference]]


def warn_missing_references(authorize: Authorize, api_group: str, namespace_prefix: str) -> Rule:
    """Warns about names of missing objects: owners, members, bindings, access rules, allow lists, clusters, scopes."""
    subject = Subject(api_group, namespace_prefix)

    finders_by_kind: dict[tuple[str, str], list[FindReferences]] = {}

    @applies_to(lambda kind, verb: verb != "delete" and bool(_finders(kind, api_group)))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        key = change.kind.group, change.kind.plural
        finders = finders_by_kind.get(key) or finders_by_kind.setdefault(key, _finders(change.kind, api_group))
        found = (each for find in finders for each in find(change, subject))
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
    if is_resource(kind, RBAC_GROUP, "rolebindings"):
        found.append(binding_references)
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
