"""The namespace of an instance in a connected cluster: its name and labels, how it is applied and deleted, and requests
for what is in it.

A namespace belongs to an instance only by its labels. Without them it is never changed or deleted, whatever its name.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from fairlead.controllers.instances.remote_errors import (
    ERROR,
    INFO,
    NAMESPACE_TERMINATING,
    WARNING,
    InstanceError,
    StillDeleting,
    quote_remote,
    unexpected_response,
)
from fairlead.core.objects import Object, get_path, labels_of, metadata, name_of
from fairlead.core.truncation import truncate_with_hash
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core import server_objects
from fairlead.registry.names import MAX_LABEL_LENGTH, dns_label_errors
from fairlead.upstream.kube_client import FIELD_MANAGER, KubeApi, delete_if_exists, get_or_none

MAX_ITEMS = 20_000
"""Of a list in a response."""
NAMESPACES_PATH = "/api/v1/namespaces"
MANAGED_LABEL, MANAGED_VALUE = server_objects.MANAGED_LABEL, server_objects.MANAGED_VALUE
PROJECT_LABEL, UID_LABEL = "service.sh/project", "service.sh/uid"
SPACE_LABEL, VIRTUAL_CLUSTER_LABEL = "service.sh/space", "service.sh/virtual-cluster"
RUNNER_LABEL = RUNNER_COMPONENT.label
NAMESPACE_CONFLICT, DELETING = "NamespaceConflict", "Deleting"
_BLOCKING_CONDITIONS = (
    *("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"),
    *("NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining"),
)
_CONTENT_REMAINING = "NamespaceContentRemaining"
"""Conditions of a terminating namespace: those that block its deletion, and that some content remains."""

_OUR_DOMAIN = "service.sh/"
POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
_KIND_LABELS = frozenset({SPACE_LABEL, VIRTUAL_CLUSTER_LABEL, RUNNER_LABEL})
_PAIR_HASH_LENGTH = 10
_plain_name_pattern = re.compile(r"[a-z0-9]+", re.ASCII)
_placeholder_pattern = re.compile(r"\{\{[ \t]*([A-Za-z.]+)[ \t]*\}\}", re.ASCII)


def choose_namespace(kind_label: str, project: str, name: str, pattern: str) -> str:
    """The namespace of a new instance, by the pattern of its project if that has one. Raises InstanceError."""
    if pattern:
        return namespace_from_pattern(pattern, {"project": project, "name": name})
    return default_namespace(kind_label, project, name)


def default_namespace(kind_label: str, project: str, name: str) -> str:
    """A unique namespace for every instance: `<project>-<name>`, with a `v` between for virtual clusters.

    Names with dashes would be ambiguous (`a` and `b-c`, `a-b` and `c`), and names with dots or of excessive length are
    invalid. Those get a suffix of two dashes, which plain names never contain, and a hash.
    """
    text = "-".join((project, "v", name) if kind_label == VIRTUAL_CLUSTER_LABEL else (project, name))
    if len(text) <= MAX_LABEL_LENGTH and _plain_name_pattern.fullmatch(project) and _plain_name_pattern.fullmatch(name):
        return text
    digest = hashlib.sha256("\n".join((kind_label, project, name)).encode()).hexdigest()[:_PAIR_HASH_LENGTH]
    return f"{text.replace('.', '-')[: MAX_LABEL_LENGTH - _PAIR_HASH_LENGTH - 2].rstrip('-')}--{digest}"


def distinguish_namespace(name: str, uid: str) -> str:
    """A name like that of a namespace which another instance has, with a hash of the uid."""
    digest = hashlib.sha256(uid.encode()).hexdigest()[:_PAIR_HASH_LENGTH]
    return f"{name[: MAX_LABEL_LENGTH - _PAIR_HASH_LENGTH - 2].rstrip('-')}--{digest}"


def namespace_from_pattern(pattern: str, values: Mapping[str, str]) -> str:
    """Expands a project's pattern, such as `team-{{ project }}-{{ name }}`. Raises InstanceError."""
    unknown = [name for name in _placeholder_pattern.findall(pattern) if name not in values]
    if unknown:
        known = ", ".join(f"{{{{ {name} }}}}" for name in values)
        raise _bad_pattern(f"it uses {{{{ {unknown[0]} }}}}, but only these are defined: {known}")
    name = truncate_with_hash(_placeholder_pattern.sub(lambda found: values[found[1]], pattern))
    for fault in dns_label_errors(name):
        raise _bad_pattern(f'it expands to "{name}", but a namespace name {fault}')
    return name


def _bad_pattern(reason: str) -> InstanceError:
    advice = "fix the project's spec.namespacePattern, or set spec.clusterRef.namespace"
    return InstanceError(
        "InvalidNamespacePattern", f"the namespace pattern of the project cannot be used: {reason}; {advice}", ERROR
    )


def ownership_labels(kind_label: str, project: str, name: str, uid: str) -> dict[str, str]:
    """The labels of the remote objects of an instance, or of a runner, which has no project. The uid proves that they
    belong to this very object, and not to another one of the same name, an earlier one, or one of another Fairlead
    installation."""
    return {
        MANAGED_LABEL: MANAGED_VALUE,
        **({PROJECT_LABEL: truncate_with_hash(project)} if project else {}),
        kind_label: truncate_with_hash(name),
        UID_LABEL: uid,
    }


@dataclass(frozen=True, slots=True)
class RemoteNamespace:
    """The location of an instance: cluster, namespace, and the ownership labels of its objects."""

    cluster: str
    namespace: str
    labels: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"{NAMESPACES_PATH}/{url_segment(self.namespace)}"

    @property
    def location(self) -> str:
        """For messages."""
        return f'namespace "{self.namespace}" in cluster "{self.cluster}"'

    def with_ownership_labels(self, other_labels: Mapping[str, str] | None) -> dict[str, str]:
        """Adds the ownership labels, which watches select by. Other labels of our domain are dropped."""
        return {**_without_own_domain(other_labels), **self.labels}

    def owns(self, existing: Object) -> bool:
        """Whether an object in the namespace was applied for this instance, by its labels."""
        labels = get_path(existing, "metadata.labels")
        return isinstance(labels, dict) and labels.get(UID_LABEL) == self.labels[UID_LABEL]


@dataclass(slots=True)
class RecordingApi:
    """A KubeApi that records the writes of one reconcile. `namespace_path` is the path of the instance's namespace. It
    is applied only after its ownership is verified: `on_namespace_owned` is called then."""

    api: KubeApi
    namespace_path: str
    on_namespace_owned: Callable[[], None]
    applied: dict[str, tuple[Object, Object]] = field(default_factory=dict)
    """By path: the applied object, and the response."""
    removed: set[str] = field(default_factory=set)
    has_created_namespace: bool = False

    def with_api(self, api: KubeApi) -> "RecordingApi":
        """Shares the records, but sends requests through another KubeApi."""
        return replace(self, api=api)

    async def get(self, path: str, /) -> Object:
        return await self.api.get(path)

    async def get_text(self, path: str, /) -> str:
        return await self.api.get_text(path)

    async def create(self, path: str, body: Object, /) -> Object:
        answer = await self.api.create(path, body)
        self.has_created_namespace = (
            self.has_created_namespace or f"{path}/{url_segment(name_of(body))}" == self.namespace_path
        )
        return answer

    async def apply(self, path: str, body: Object, /) -> Object:
        answer = await self.api.apply(path, body)
        self.applied[path] = body, answer
        self.removed.discard(path)
        if path == self.namespace_path:
            self.on_namespace_owned()
        return answer

    async def check_apply(self, path: str, body: Object, /) -> Object:
        return await self.api.check_apply(path, body)

    async def patch(self, path: str, body: Object, /) -> Object:
        return await self.api.patch(path, body)

    async def delete(self, path: str, body: Object | None = None, /) -> Object:
        self.removed.add(path)
        return await self.api.delete(path, body)


async def ensure_namespace(
    api: KubeApi,
    target: RemoteNamespace,
    template: Object,
    *,
    pod_security: str = "",
    leave_as_is: bool = False,
    before_creation: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Creates or updates the namespace, with the labels and annotations of a template. Returns whether it is active.
    `pod_security` is the enforced pod security level, unless another field manager has set one. With `leave_as_is`, an
    existing namespace is not changed. `before_creation` is called if there is none."""
    existing = await get_or_none(api, target.path)
    if existing is None:
        if before_creation is not None:
            await before_creation()
        # With the ownership labels only: the rest is applied below, so that apply can remove it again later.
        await api.create(NAMESPACES_PATH, _build_namespace(target, {}, {}))
    elif not is_owned_by(existing, target):
        message = (
            f"{target.location} exists and does not belong to this instance; delete it there, or delete this "
            "instance and create one with another spec.clusterRef.namespace"
        )
        raise InstanceError(NAMESPACE_CONFLICT, message, ERROR)
    elif "deletionTimestamp" in metadata(existing):
        blocker = find_deletion_blocker(existing).message
        detail = f" ({blocker})" if blocker else ""
        message = f"{target.location} is terminating{detail}; it will be created again after that"
        raise InstanceError(NAMESPACE_TERMINATING, message, INFO)
    if leave_as_is and existing is not None:
        return get_path(existing, "status.phase") in (None, "", "Active")
    level = {POD_SECURITY_LABEL: pod_security} if pod_security and not _is_set_by_others(existing) else {}
    applied = await api.apply(target.path, _build_namespace(target, template, level))
    return get_path(applied, "status.phase") in (None, "", "Active")


def is_owned_by(namespace: Object, target: RemoteNamespace) -> bool:
    """Compares the labels for the uid and for the kind of the instance: a uid is never valid for another kind."""
    labels = get_path(namespace, "metadata.labels") or {}
    if not isinstance(labels, dict):
        raise unexpected_response("the labels of a namespace are not a map")
    is_same = labels.get(MANAGED_LABEL) == MANAGED_VALUE and labels.get(UID_LABEL) == target.labels[UID_LABEL]
    return is_same and _KIND_LABELS & labels.keys() == _KIND_LABELS & target.labels.keys()


def _is_set_by_others(existing: Object | None) -> bool:
    """Whether another field manager has set the pod security level of a namespace."""
    if POD_SECURITY_LABEL not in labels_of(existing):
        return False
    managers = get_path(existing, "metadata.managedFields")
    server_owned = (
        each.get("fieldsV1")
        for each in (managers if isinstance(managers, list) else ())
        if isinstance(each, dict) and (each.get("manager"), each.get("operation")) == (FIELD_MANAGER, "Apply")
    )
    labels = (get_path(fields, "f:metadata.f:labels") for fields in server_owned)
    return not any(isinstance(each, dict) and f"f:{POD_SECURITY_LABEL}" in each for each in labels)


def _build_namespace(target: RemoteNamespace, template: Object, labels: Mapping[str, str]) -> Object:
    """Labels and annotations of our domain in a template are ignored: they identify the owner of a namespace."""
    meta: Object = {
        "name": target.namespace,
        "labels": {**target.with_ownership_labels(get_path(template, "metadata.labels")), **labels},
    }
    if annotations := _without_own_domain(get_path(template, "metadata.annotations")):
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _without_own_domain(values: Mapping[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (values or {}).items() if not key.startswith(_OUR_DOMAIN)}


def uid_precondition(existing: Object) -> Object:
    """DeleteOptions with the uid of the object as a precondition."""
    uid = get_path(existing, "metadata.uid")
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def list_items(document: Object, field: str) -> list[Object]:
    """A list of objects in a response. Raises InstanceError if it is anything else, or longer than any that is needed:
    to look at hundreds of thousands would hold up the event loop."""
    found = document.get(field) or []
    if isinstance(found, list) and len(found) > MAX_ITEMS:
        raise unexpected_response(f"{field} has more than {MAX_ITEMS} objects")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise unexpected_response(f"{field} is not a list of objects")
    return found


def url_segment(name: str) -> str:
    """Percent-encodes a name as one path segment."""
    return quote(name, safe=":")


async def delete_namespace(api: KubeApi, target: RemoteNamespace) -> None:
    """Deletes the namespace if it belongs to the instance. Raises StillDeleting until it is gone."""
    existing = await get_or_none(api, target.path)
    if existing is None or not is_owned_by(existing, target):
        return
    if "deletionTimestamp" not in metadata(existing):
        await delete_if_exists(api, target.path, uid_precondition(existing))
    raise find_deletion_blocker(existing)


def find_deletion_blocker(namespace: Object) -> StillDeleting:
    """What a terminating namespace waits for, from its conditions."""
    conditions = get_path(namespace, "status.conditions")
    valid = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    messages = {str(each.get("type")): each.get("message") or "" for each in valid if each.get("status") == "True"}
    found = [type for type in (*_BLOCKING_CONDITIONS, _CONTENT_REMAINING) if type in messages]
    message = "; ".join(f"{type}: {quote_remote(messages[type])}" for type in found)
    if found and found[0] in _BLOCKING_CONDITIONS:
        return StillDeleting(found[0], message, WARNING)
    return StillDeleting(DELETING, message, INFO)
