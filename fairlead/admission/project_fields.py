"""Rejects words in projects that have no effect: quota keys that count nothing, and kinds that are no templates.

The server defines these words, so the order in which objects are created does not matter, and a typo is an error. Only
what the change adds is checked: stored projects can still be changed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import Invalid, Problem
from fairlead.core.objects import get_path, name_of
from fairlead.core.suggestions import did_you_mean, nearest_word
from fairlead.domain.quotas import ACTIVE_SUFFIX
from fairlead.kinds import INSTANCES
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

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
            raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)
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
