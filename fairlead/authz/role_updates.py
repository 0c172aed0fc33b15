"""Updates a default role that was written by another version of the server, and preserves what users have changed.

A role whose rules are those that a server wrote is replaced. To a role that users have edited, only permissions are
added that are new in this version: those that neither the server that wrote the role nor any later one has offered.
Two annotations record that: a digest of the rules as they were written, and the default rules of the newest version
that has updated the role. What users have removed from the role stays removed.

An edited role without the second annotation is left alone once, because it is unknown what it was offered: users have
replaced it, or deleted and created it again. The roles of the first release had neither. The migration of its data
marks them, and they have been offered the resources of that release. As in Kubernetes, the annotation
`rbac.authorization.kubernetes.io/autoupdate: "false"` turns updates of a role off.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object, annotations_of, metadata

RULES_DIGEST_ANNOTATION = "service.sh/default-rules"
"""Annotation with the digest of the rules that the server wrote."""
OFFERED_RULES_ANNOTATION = "service.sh/offered-rules"
"""Annotation with the default rules, as JSON, of the newest version that has updated the role."""
FIRST_RELEASE = "0.1"
"""The value of that annotation in a role of the first release, which has not been updated yet."""
AUTOUPDATE_ANNOTATION = "rbac.authorization.kubernetes.io/autoupdate"

FIRST_RELEASE_ROLES = frozenset({"admin", "cluster-admin", "edit", "system:basic-user", "system:discovery", "view"})
FIRST_RELEASE_RESOURCES = frozenset(
    {
        "*",  # of cluster-admin
        *("configmaps", "events", "leases", "namespaces", "namespaces/status", "secrets"),
        *("devpodworkspaceinstances", "devpodworkspaceinstances/status", "rolebindings", "roles"),
        *("customresourcedefinitions", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"),
        *("selfsubjectrulesreviews", "selves"),
    }
)
"""The resources in the default roles of the first release, which recorded nothing."""
NEWER_GROUPS = frozenset({"events.k8s.io"})
"""Groups that are newer, of which a resource has the name of one in another group."""

ALL = "*"

Permission = tuple[str | None, str, str]
"""The group, resource and verb. The group of a non-resource path is None."""


def new_default_role(role: Object) -> Object:
    """The default role with the annotations that record its rules."""
    return _annotate(role, {RULES_DIGEST_ANNOTATION: _digest(role), OFFERED_RULES_ANNOTATION: _encode(role["rules"])})


def mark_first_release(role: Object) -> Object:
    """A role of the first release with the annotation that says so; the role itself if it has been updated since."""
    annotations = annotations_of(role)
    if RULES_DIGEST_ANNOTATION in annotations or OFFERED_RULES_ANNOTATION in annotations:
        return role
    return _annotate(role, {OFFERED_RULES_ANNOTATION: FIRST_RELEASE})


def update_role(default: Object, current: Object) -> Object:
    """The role as it should be now; equal to `current` if there is nothing to update."""
    annotations = annotations_of(current)
    if annotations.get(AUTOUPDATE_ANNOTATION) == "false" or "aggregationRule" in current:
        return current
    rules = current.get("rules") or []
    if rules == default["rules"] or annotations.get(RULES_DIGEST_ANNOTATION) == _digest(current):
        return new_default_role({**current, "rules": default["rules"]})
    unoffered = _unoffered(default["rules"], annotations)
    added = _build_rules(each for each in unoffered if not any(_includes(rule, each) for rule in rules))
    updated = {**current, "rules": [*rules, *added]} if added else current
    return _annotate(updated, {OFFERED_RULES_ANNOTATION: _encode(default["rules"])})


def _annotate(role: Object, annotations: dict[str, str]) -> Object:
    meta = metadata(role)
    return {**role, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations}}}


def _encode(rules: Any) -> str:
    return encode_sorted(rules).decode()


def _digest(role: Object) -> str:
    return sha256(_encode(role.get("rules") or []).encode()).hexdigest()


def _unoffered(defaults: Sequence[Object], annotations: Mapping[str, str]) -> list[Permission]:
    """The permissions of the defaults that the role has not been offered yet."""
    recorded = annotations.get(OFFERED_RULES_ANNOTATION)
    if recorded == FIRST_RELEASE:
        return [
            (group, resource, verb)
            for group, resource, verb in _permissions(defaults)
            if group is not None and (resource not in FIRST_RELEASE_RESOURCES or group in NEWER_GROUPS)
        ]
    offered = _parse_offered(recorded) if recorded is not None else None
    return [each for each in _permissions(defaults) if each not in offered] if offered is not None else []


def _parse_offered(recorded: str) -> frozenset[Permission] | None:
    """The permissions in the annotation; None if it is not readable, as after an administrator has changed it."""
    try:
        return frozenset(_permissions(orjson.loads(recorded)))
    except (ValueError, TypeError, AttributeError):
        return None


def _permissions(rules: Iterable[Object]) -> Iterator[Permission]:
    for rule in rules:
        for verb in rule.get("verbs") or ():
            for url in rule.get("nonResourceURLs") or ():
                yield None, url, verb
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    yield group, resource, verb


def _includes(rule: Object, permission: Permission) -> bool:
    """Whether the rule grants the permission, for objects of all names."""
    group, resource, verb = permission
    if rule.get("resourceNames") or not {verb, ALL} & {*(rule.get("verbs") or ())}:
        return False
    if group is None:
        return bool({resource, ALL} & {*(rule.get("nonResourceURLs") or ())})
    names = {*(rule.get("resources") or ())}
    return bool({group, ALL} & {*(rule.get("apiGroups") or ())} and {resource, ALL} & names)


def _build_rules(permissions: Iterable[Permission]) -> list[Object]:
    """One rule for each group and set of verbs."""
    verbs_of: dict[tuple[str | None, str], set[str]] = {}
    for group, resource, verb in permissions:
        verbs_of.setdefault((group, resource), set()).add(verb)
    resources_of: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in verbs_of.items():
        resources_of.setdefault((group, tuple(sorted(verbs))), []).append(resource)
    return [
        {"nonResourceURLs": names, "verbs": list(verbs)}
        if group is None
        else {"apiGroups": [group], "resources": sorted(names), "verbs": list(verbs)}
        for (group, verbs), names in resources_of.items()
    ]
