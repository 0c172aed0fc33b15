"""Builders of roles, bindings and requests, and an RbacAuthorizer with a fixed set of objects."""

from collections.abc import Iterable
from typing import Any, cast

from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.registry.informer import Informer
from fairlead.storage.view.view import NamespacedName


class FixedInformer:
    """An informer of objects that never change."""

    revision = 1

    def __init__(self, objects: Iterable[Object]) -> None:
        self.view = self
        self.objects = {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}

    def refresh(self) -> int:
        return 1

    def pop_changed_keys(self) -> set[NamespacedName]:
        return set(self.objects)


def build_rbac(
    roles: Any = (), cluster_roles: Any = (), role_bindings: Any = (), cluster_role_bindings: Any = ()
) -> RbacAuthorizer:
    object_lists = (roles, cluster_roles, role_bindings, cluster_role_bindings)
    return RbacAuthorizer(*(cast(Informer, FixedInformer(each)) for each in object_lists))


def object_metadata(name: str, namespace: str = "") -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def role(*rules: Object, name: str = "r", namespace: str = "") -> Object:
    return {"metadata": object_metadata(name, namespace), "rules": list(rules) or None}


def binding(
    *subjects: Object, name: str = "b", namespace: str = "", kind: str = "ClusterRole", role_name: str = "r"
) -> Object:
    return {
        "metadata": object_metadata(name, namespace),
        "subjects": list(subjects),
        "roleRef": {"kind": kind, "name": role_name},
    }


def subject(kind: str, name: str, namespace: str = "") -> Object:
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def resource_rule(verbs: str, resources: str, groups: str = "g", names: str = "") -> Object:
    """Each argument is a list of values separated by spaces; a dot is the core group."""
    fields = {"verbs": verbs, "resources": resources, "apiGroups": groups, "resourceNames": names}
    return {field: ["" if each == "." else each for each in text.split()] for field, text in fields.items() if text}


def path_rule(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


def resource_request(verb: str, resource: str, name: str = "", group: str = "g", namespace: str = "") -> RequestInfo:
    plural, _, subresource = resource.partition("/")
    return RequestInfo(verb, "/x", "management", group, "v1", plural, subresource, namespace, name)


def path_request(verb: str, url: str) -> RequestInfo:
    return RequestInfo(verb, url, "management")
