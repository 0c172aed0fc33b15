"""Admission of objects in projects: no creates while the project is being deleted, and its allow lists.

The namespace of a project is deleted last, after the instances that need its content, so until then only
`require_active_project` prevents new objects. A create that races with the deletion is cleaned up with the namespace.

Allow lists (`allow_lists.py`) are checked when an object is created, and when it is changed to use something else. What
was allowed before may stay. They apply to all users, including administrators.

Rejects words in projects that have no effect: quota keys that count nothing, and kinds that are no templates.

The server defines these words, so the order in which objects are created does not matter, and a typo is an error. Only
what the change adds is checked: stored projects can still be changed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.admission import Rule, applies_to, forbidden, invalid, is_resource
from fairlead.admission.allow_lists import CLUSTERS, ClusterUseCheck, allowed_names, is_allowed, suggest_patch
from fairlead.core.errors import Forbidden, Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.suggestions import did_you_mean, nearest_word
from fairlead.domain.quotas import ACTIVE_SUFFIX
from fairlead.kinds import INSTANCES
from fairlead.registry.codec import decode
from fairlead.registry.kind import AllowListField, Change
from fairlead.registry.registry import Registry


def require_active_project(api_group: str, prefix: str) -> Rule:
    """Rejects creates of management kinds in a project that is being deleted; other kinds depend on the namespace."""

    @applies_to(lambda kind, verb: verb == "create" and kind.group == api_group and kind.namespaced)
    async def rule(change: Change, registry: Registry) -> None:
        namespace = metadata(change.obj).get("namespace", "")
        project = namespace.removeprefix(prefix)
        if project == namespace:
            return
        entry = registry.resource(api_group, "projects").get_cached("", project)
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            why = f'project "{project}" is being deleted; use another one, or wait and create it again'
            raise forbidden(change, why)

    return rule


MAX_LISTED_NAMES = 10
"""How many names of an allow list an error message contains."""


def enforce_allow_lists(api_group: str, prefix: str, use_check: ClusterUseCheck | None = None) -> Rule:
    """Rejects instances that use a cluster, template or runner that their project does not allow."""

    @applies_to(lambda kind, verb: verb != "delete" and kind.group == api_group and bool(kind.allow_list_fields))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        uses = [use for use in change.kind.allow_list_fields if _is_set_anew(change, use)]
        project = str(metadata(change.obj).get("namespace") or "").removeprefix(prefix)
        lists = find_project(change, registry, (api_group, prefix)) if uses else None
        if lists is None:
            return
        for use in uses:
            names = allowed_names(lists, use.allow_list, use.kind, api_group)
            if names is None and use.allow_list == CLUSTERS and use_check is not None:
                if why := use_check.denial_reason(change, registry, project, get_path(change.obj, use.path)):
                    raise forbidden(change, why)
            elif names is not None and not is_allowed(names, get_path(change.obj, use.path)):
                raise _not_allowed_error(change, use, project, names)

    return rule


def check_allow_list(change: Change, field: AllowListField, registry: Registry, place: tuple[str, str]) -> None:
    """Raises an error if the project does not allow what the field names. For rules that have to know it earlier.
    `place` is the API group and the prefix of project namespaces."""
    project = find_project(change, registry, place)
    if project is None or not _is_set_anew(change, field):
        return
    names = allowed_names(project, field.allow_list, field.kind, place[0])
    if not is_allowed(names, get_path(change.obj, field.path)):
        raise _not_allowed_error(change, field, name_of(project), names or [])


def find_project(change: Change, registry: Registry, place: tuple[str, str]) -> Object | None:
    """The project of the object; None outside of projects."""
    api_group, prefix = place
    namespace = str(metadata(change.obj).get("namespace") or "")
    if not namespace.startswith(prefix):
        return None
    entry = registry.resource(api_group, "projects").get_cached("", namespace.removeprefix(prefix))
    return decode(entry) if entry is not None else None


def _is_set_anew(change: Change, field: AllowListField) -> bool:
    """Whether the change sets the field to another name. Schema validation rejects anything that is not a string."""
    name = get_path(change.obj, field.path)
    return isinstance(name, str) and name != "" and name != get_path(change.old, field.path)


def describe_allowed(field: AllowListField, names: list[str]) -> str:
    listed = ", ".join(names[:MAX_LISTED_NAMES]) + (", ..." if len(names) > MAX_LISTED_NAMES else "")
    return f"allowed here: {listed}" if names else f"the project allows no {field.noun} at all"


def _not_allowed_error(change: Change, field: AllowListField, project: str, names: list[str]) -> Forbidden:
    choice = describe_allowed(field, names)
    why = (
        f'project "{project}" does not allow the {field.noun} "{get_path(change.obj, field.path)}" ({field.path}); '
        f"{choice}; "
        f"choose an allowed one, or have it added to spec.{field.allow_list} of the project"
    )
    if field.allow_list == CLUSTERS:
        entry = (
            f'{{"op":"add","path":"/spec/allowedClusters/-","value":{{"name":"{get_path(change.obj, field.path)}"}}}}'
        )
        why += suggest_patch(project, f"[{entry}]", "json", get_path(change.obj, field.path))
    return forbidden(change, why)


QUOTA_KEYS = tuple(f"{plural}{suffix}" for plural in INSTANCES for suffix in ("", ACTIVE_SUFFIX))
"""The quota keys that this server counts."""
CLUSTER_QUOTA_KEY = re.compile(
    r"cpu|memory|storage|ephemeral-storage|pods|services(\.(loadbalancers|nodeports))?|replicationcontrollers"
    r"|resourcequotas|secrets|configmaps|persistentvolumeclaims|hugepages-.+|(limits|requests)\..+|[^/]+/.+",
    re.ASCII,
)
"""The keys of Kubernetes' ResourceQuota, which are for connected clusters and count nothing here."""


def check_project_fields(api_group: str) -> Rule:
    """Rejects unknown quota keys and unknown kinds in `spec.allowedTemplates`."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, "projects"))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.new is None or change.problems:
            return
        kinds = {use.kind for kind in registry.catalog.kinds for use in kind.allow_list_fields if use.kind}
        problems = [*_quota_problems(change), *_template_kind_problems(change, sorted(kinds))]
        if problems:
            raise invalid(change, *problems)
        _warn_cluster_quotas(change)
        _warn_template_groups(change, api_group)

    return rule


def _added_quota_keys(change: Change) -> Iterator[tuple[str, str]]:
    """The keys that the change adds, each with the path of its map."""
    for scope in ("project", "user"):
        before: Mapping[str, Any] = get_path(change.old, f"spec.quotas.{scope}") or {}
        for key in get_path(change.new, f"spec.quotas.{scope}") or {}:
            if key not in before:
                yield f"spec.quotas.{scope}", key


def _quota_problems(change: Change) -> Iterator[Problem]:
    for path, key in _added_quota_keys(change):
        if key not in QUOTA_KEYS and not CLUSTER_QUOTA_KEY.fullmatch(key):
            why = f"counts nothing; the keys are {', '.join(QUOTA_KEYS)}{did_you_mean(nearest_word(key, QUOTA_KEYS))}"
            yield Problem.invalid(path, key, why)


def _warn_cluster_quotas(change: Change) -> None:
    for path, key in _added_quota_keys(change):
        if key not in QUOTA_KEYS:
            change.warnings.append(
                f"{path}[{key}] limits nothing on this server; to limit what runs in a space, add a ResourceQuota to "
                "the objects of its template"
            )


def _added_template_entries(change: Change, field: str) -> Iterator[tuple[str, str]]:
    """The values of a field in the entries of `spec.allowedTemplates` that the change adds, with their paths."""
    before = {each.get(field) for each in get_path(change.old, "spec.allowedTemplates") or ()}
    for index, entry in enumerate(get_path(change.new, "spec.allowedTemplates") or ()):
        value = entry.get(field)
        if value and value not in before:
            yield f"spec.allowedTemplates[{index}].{field}", value


def _template_kind_problems(change: Change, kinds: list[str]) -> Iterator[Problem]:
    for path, kind in _added_template_entries(change, "kind"):
        if kind not in kinds:
            why = f"must be empty or one of {', '.join(kinds)}{did_you_mean(nearest_word(kind, kinds))}"
            yield Problem.invalid(path, kind, why)


def _warn_template_groups(change: Change, api_group: str) -> None:
    for path, group in _added_template_entries(change, "group"):
        if group != api_group:
            change.warnings.append(f'{path}: the entry allows nothing, because no templates are in the group "{group}"')
