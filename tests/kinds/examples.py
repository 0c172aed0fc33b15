"""One object of each kind with something in every column, and a short way to write a Change."""

from copy import deepcopy
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.registry.kind import Change, Kind

BY_NAME = {kind.name: kind for kind in KINDS}

_FIELDS: dict[str, Object] = {
    "App": {
        "spec": {
            "displayName": "Nginx",
            "icon": "https://example.com/i.png",
            "owner": {"user": "ada"},
            "access": [{"users": ["*"], "verbs": ["get"]}],
            "recommendedApp": ["cluster", "space"],
            "config": {"chart": {"name": "nginx", "repoURL": "https://charts.example.com", "version": "1.2.3"}},
            "parameters": [{"variable": "image.tag", "type": "string", "required": True}],
        },
        "status": {"anything": {"goes": [1, 2]}},
    },
    "Cluster": {
        "spec": {"displayName": "Berlin", "config": {"secretName": "berlin", "secretNamespace": "service-system"}},
        "status": {"phase": "Initialized", "reason": "Pending", "online": True, "version": "v1.33.1"},
    },
    "Project": {
        "spec": {
            "displayName": "Demo",
            "owner": {"team": "core"},
            "members": [{"kind": "User", "name": "ada", "clusterRole": "admin"}, {"kind": "Team", "name": "*"}],
            "allowedTemplates": [{"kind": "SpaceTemplate", "name": "*", "isDefault": True}],
            "quotas": {"project": {"spaceinstances": "10"}, "user": {"limits.memory": "1.5Gi"}},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    "DevPodWorkspaceInstance": {
        "spec": {
            "displayName": "my workspace",
            "owner": {"user": "ada"},
            "parameters": "region: eu\n",
            "runnerRef": {"runner": "local"},
            "templateRef": {"name": "python"},
        },
        "status": {"phase": "Ready", "lastWorkspaceStatus": "Running"},
    },
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "ConfigMap": {"data": {"a": "1"}, "binaryData": {"b": "AAE="}},
    "Secret": {"data": {"a": "MQ=="}, "type": "Opaque"},
    "Event": {
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "demo", "fieldPath": "data.a"},
        "reason": "Started",
        "message": "it began\n",
        "type": "Normal",
        "count": 3,
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:05:05Z",
        "source": {"component": "tester", "host": "h1"},
    },
    "Lease": {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0}},
}


def example(name: str, **fields: Any) -> Object:
    """A fresh object of the kind; `fields` replace top-level ones, None takes one away."""
    kind = BY_NAME[name]
    metadata = {"name": "demo", "namespace": "demo"} if kind.namespaced else {"name": "demo"}
    obj = {"apiVersion": kind.api_version, "kind": name, "metadata": metadata, **deepcopy(_FIELDS[name]), **fields}
    return {field: value for field, value in obj.items() if value is not None}


def write(new: Object, old: Object | None = None, subresource: str = "") -> Change:
    """The change from `old` to `new`, or the creation of `new`."""
    verb = "create" if old is None else "update"
    return Change(verb, BY_NAME[new["kind"]], User("ada"), old, new, subresource)


def prepared(new: Object, old: Object | None = None, subresource: str = "") -> Object:
    """What the kind makes of `new` before it is checked."""
    change = write(new, old, subresource)
    change.kind.prepare(change)
    return change.obj


def problems(new: Object, old: Object | None = None, subresource: str = "") -> list[Problem]:
    """What the kind has against `new`, once it is prepared."""
    change = write(new, old, subresource)
    change.kind.prepare(change)
    return list(change.kind.check(change))


def complaints(new: Object, old: Object | None = None, subresource: str = "") -> list[tuple[str, str]]:
    """The same as pairs of field and reason."""
    return [(problem.field, problem.reason) for problem in problems(new, old, subresource)]


def warnings(new: Object) -> list[str]:
    change = write(new)
    change.kind.prepare(change)
    return change.warnings


def cells(kind: Kind, obj: Object) -> dict[str, Any]:
    """The object's value in each column that is a function."""
    return {column.name: column.path(obj) for column in kind.columns if callable(column.path)}
