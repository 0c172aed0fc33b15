"""An example object of each kind with a value in every column, and functions that check a change of it."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.registry.kind import Change, Kind

BY_NAME = {kind.name: kind for kind in KINDS if kind.conversion is None}

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
    "AppInstance": {
        "spec": {
            "displayName": "Shop",
            "owner": {"user": "ada"},
            "appRef": {"name": "nginx", "version": "1.x.x"},
            "parameters": "size: 3\n",
            "target": {"spaceInstance": {"name": "dev"}},
            "releaseName": "shop",
        },
        "status": {
            "phase": "Ready",
            "reason": "Deployed",
            "release": {"name": "shop", "revision": 2, "chart": "nginx", "version": "1.2.3"},
            "history": [{"revision": 2, "appVersion": "1.1.0", "parameters": "size: 3\n", "hasAllParameters": True}],
        },
    },
    "Cluster": {
        "spec": {"displayName": "Berlin", "config": {"secretName": "berlin", "secretNamespace": "service-system"}},
        "status": {
            "phase": "Initialized",
            "reason": "Pending",
            "online": True,
            "version": "v1.33.1",
            "credentialExpiry": {"type": "token", "state": "Valid", "expirationTimestamp": "2026-02-01T00:00:00Z"},
        },
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
            "environmentRef": {"name": "python"},
            "templateRef": {"name": "python"},
        },
        "status": {
            "phase": "Failed",
            "reason": "BuildFailed",
            "message": "step build: no such image",
            "lastWorkspaceStatus": "Stopped",
            "usage": {"memory": "512Mi", "disk": "2Gi"},
            "conditions": [{"type": "Ready", "status": "False", "reason": "BuildFailed"}],
            "sleepModeConfig": {"status": {"scheduledSleep": 1_800_000_000}},
        },
    },
    "Runner": {
        "spec": {
            "displayName": "Local",
            "owner": {"user": "ada"},
            "clusterRef": {
                "cluster": "berlin",
                "namespace": "runners",
                "persistentVolumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageSize": "10Gi"}},
                "podTemplate": {"spec": {"image": "example.com/runner:1", "tolerations": [{"operator": "Exists"}]}},
                "serviceTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"type": "ClusterIP"}},
            },
            "networkPeerName": "local",
            "endpoint": "runner.example.com:8443",
            "unusable": False,
        },
        "status": {
            "phase": "Initialized",
            "reason": "Reported",
            "engines": [{"name": "devcontainer", "capacity": {"cpus": "4", "memory": "8Gi", "disk": "100Gi"}}],
            "labels": {"kubernetes.io/arch": "arm64"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    "SpaceInstance": {
        "spec": {
            "displayName": "my space",
            "owner": {"user": "ada"},
            "templateRef": {"name": "isolated", "version": "1.x.x"},
            "parameters": "size: small\n",
            "clusterRef": {"cluster": "berlin", "namespace": "ada-space"},
            "extraAccessRules": [{"users": ["bob"], "clusterRole": "view"}],
        },
        "status": {"phase": "Ready", "reason": "Resolved", "space": {"objects": "kind: Pod"}, "canUse": True},
    },
    "VirtualClusterInstance": {
        "spec": {
            "displayName": "my cluster",
            "owner": {"team": "core"},
            "templateRef": {"name": "small", "version": "x.x.x"},
            "parameters": "replicas: 2\n",
            "clusterRef": {"cluster": "berlin", "namespace": "ada", "virtualCluster": "ada"},
            "networkPeer": False,
            "external": False,
        },
        "status": {"phase": "Ready", "reason": "Resolved", "serviceUID": "1", "virtualClusterObjects": {"apps": [{}]}},
    },
    "DevPodWorkspaceTemplate": {
        "spec": {
            "displayName": "Python",
            "description": "A workspace with Python in it",
            "template": {"provider": {"name": "docker", "options": {"IMAGE": {"value": "{{ parameters.image }}"}}}},
            "parameters": [{"variable": "image", "defaultValue": "python:3"}],
            "versions": [{"version": "1.0.0", "template": {"provider": {"name": "docker"}}}],
        },
        "status": {},
    },
    "DevPodEnvironmentTemplate": {
        "spec": {
            "displayName": "Python",
            "description": "Python, for repositories of any kind",
            "template": {"inline": '{"image": "python:3"} // the newest'},
            "versions": [{"version": "1.0.0", "template": {"inline": '{"image": "python:3.12"}'}}],
        },
        "status": {},
    },
    "DevPodWorkspacePreset": {
        "spec": {
            "displayName": "Shop",
            "description": "The shop, with everything that it needs",
            "source": {"git": "https://example.com/shop.git@main"},
            "templateRef": {"name": "python", "version": "1.x.x"},
            "environmentRef": {"name": "python"},
            "parameters": "image: python:3.12",
            "versions": [
                {"version": "1.0.0", "source": {"image": "debian:12"}, "templateRef": {"name": "python"}},
            ],
        },
        "status": {},
    },
    "SpaceTemplate": {
        "spec": {
            "displayName": "Isolated",
            "description": "A space that nobody else reaches",
            "template": {"objects": "kind: NetworkPolicy", "charts": [{"name": "c", "password": "p"}]},
            "parameters": [{"variable": "size", "options": ["small", "large"], "required": True}],
            "versions": [{"version": "1.0.0", "template": {"objects": "kind: NetworkPolicy"}}, {"version": "1.10.0"}],
        },
    },
    "VirtualClusterTemplate": {
        "spec": {
            "displayName": "Small",
            "description": "A small virtual cluster",
            "template": {"helmRelease": {"values": "replicas: {{ parameters.replicas }}"}},
            "parameters": [{"variable": "replicas", "type": "number", "min": 1, "max": 3, "defaultValue": "1"}],
            "versions": [{"version": "2.0.1", "template": {"forwardToken": True}}],
        },
    },
    "ProjectSecret": {
        "spec": {"displayName": "Registry", "owner": {"user": "ada"}, "data": {"token": "MQ=="}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    "SharedSecret": {
        "spec": {
            "displayName": "Registry",
            "owner": {"user": "ada"},
            "access": [{"users": ["bob"], "verbs": ["get", "use"]}],
            "data": {"token": "MQ=="},
        },
        "status": {"conditions": []},
    },
    "User": {
        "spec": {
            "displayName": "Ada",
            "owner": {"user": "ada"},
            "username": "ada",
            "email": "ada@example.com",
            "groups": ["devs"],
            "ssoGroups": ["people"],
            "clusterRoles": [{"name": "auditor"}],
            "passwordRef": {"secretName": "ada-password", "secretNamespace": "service-system", "key": "password"},
            "tokenGeneration": 2,
        },
        "status": {"teams": ["core"]},
    },
    "Team": {
        "spec": {"displayName": "Core", "username": "core", "users": ["ada"], "groups": ["people"], "disabled": False},
        "status": {"members": ["ada"]},
    },
    "OwnedAccessKey": {
        "spec": {
            "displayName": "CI",
            "user": "ada",
            "groups": ["ci"],
            "key": "hmac-sha256:0011:2233",
            "ttl": 3600,
            "ttlAfterLastActivity": True,
            "scope": {"projects": [{"project": "demo"}]},
            "type": "User",
            "identity": {"userId": "1", "emailVerified": True, "identityRefresh": "2026-01-02T03:04:05Z"},
            "oidcProvider": {"clientId": "c", "scopes": "openid"},
        },
        "status": {
            "lastActivity": "2026-01-02T03:04:05Z",
            "expired": "2026-01-02T04:04:05Z",
            "previous": [{"key": "hmac-sha256:0011:4455", "until": "2026-01-02T05:04:05Z"}],
        },
    },
    "Config": {
        "metadata": {"name": "service-manager-config"},
        "spec": {"raw": "auth: {accessKeyMaxTTLSeconds: 3600, loginAccessKeyTTLSeconds: 60}\n"},
        "status": {"auth": {"accessKeyMaxTTLSeconds": 3600, "loginAccessKeyTTLSeconds": 60}},
    },
    "ServiceAccount": {"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}]},
    "Pod": {"spec": {"restartPolicy": "Never"}, "status": {"phase": "Pending"}},
    "Service": {"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {}}},
    "CustomResourceDefinition": {"spec": {"scope": "Cluster"}, "status": {"storedVersions": ["v1"]}},
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "ConfigMap": {"data": {"a": "1"}, "binaryData": {"b": "AAE="}},
    "Secret": {"data": {"a": "MQ=="}, "type": "Opaque"},
    "Event": {
        "involvedObject": {"kind": "ConfigMap", "name": "x", "namespace": "demo", "fieldPath": "data.a"},
        "reason": "Started",
        "message": "it began\n",
        "type": "Normal",
        "count": 3,
        **{"firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:05:05Z"},
        "source": {"component": "tester", "host": "h1"},
    },
    "Lease": {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0}},
    "Role": {
        "metadata": {"name": "a:B_c", "namespace": "demo", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["x"]}],
    },
    "ClusterRole": {
        "metadata": {"name": "system:x", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "rules": [{"nonResourceURLs": ["/version", "/x/*"], "verbs": ["get"]}],
        "aggregationRule": {
            "clusterRoleSelectors": [
                {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}
            ]
        },
    },
    "RoleBinding": {
        "subjects": [
            {"kind": "User", "name": "ada"},
            {"kind": "Group", "name": "core"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "demo"},
        ],
        "roleRef": {"kind": "Role", "name": "a:B_c"},
    },
    "ClusterRoleBinding": {
        "subjects": [
            {"kind": "User", "name": "ada"},
            {"kind": "Group", "name": "core"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "demo"},
        ],
        "roleRef": {"kind": "ClusterRole", "name": "system:x"},
    },
    "DirectClusterEndpointToken": {
        "metadata": {},
        "spec": {"ttl": 3600, "scope": {"projects": [{"project": "demo"}]}},
        "status": {"token": "a.b.c"},
    },
    "TokenKeyRotation": {
        "metadata": {},
        "status": {"keyID": "2026-01-02-0123456789abcdef", "retiredUntil": "2026-04-02T03:04:05Z"},
    },
    "SignOnReview": {"metadata": {}, "spec": {"connector": "okta", "claims": {"sub": "1"}}},
    "Self": {
        "metadata": {},
        "spec": {"accessKey": "laptop"},
        "status": {
            "user": {"name": "ada", "username": "ada", "teams": [{"name": "core", "subject": "service:team:core"}]},
            "accessKey": "laptop",
            "accessKeyType": "User",
            "accessKeyScope": {"projects": [{"project": "demo"}]},
            "groups": ["service:user:ada"],
            "projectNamespacePrefix": "service-p-",
        },
    },
    "AuditEvent": {
        "level": "Metadata",
        "auditID": "7b0c6a0e-5d0c-4d0a-a3f5-0d9b6f0a2c11",
        "stage": "ResponseComplete",
        "requestURI": "/kubernetes/management/api/v1/namespaces/demo/configmaps/settings",
        "verb": "get",
        "user": {"username": "ada", "uid": "u1", "groups": ["developers"], "extra": {"service.sh/access-key": ["v"]}},
        "impersonatedUser": {"username": "grace"},
        "sourceIPs": ["192.0.2.7"],
        "userAgent": "kubectl/v1.35.0",
        "objectRef": {"resource": "configmaps", "namespace": "demo", "name": "settings", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 403, "reason": "Forbidden", "details": {"kind": "configmaps"}},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000123Z",
        "stageTimestamp": "2026-01-02T03:04:05.002345Z",
        "annotations": {
            "authorization.k8s.io/decision": "forbid",
            "authorization.k8s.io/reason": "none",
            "service.sh/refused-by": "authorization",
        },
    },
    "SelfSubjectReview": {"metadata": {}, "status": {"userInfo": {"username": "ada", "extra": {"k": ["v"]}}}},
    "TokenReview": {"metadata": {}, "spec": {"token": "x", "audiences": ["a"]}, "status": {"authenticated": False}},
    "SelfSubjectAccessReview": {
        "metadata": {},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "apps", "labelSelector": {"rawSelector": "a=b"}}},
        "status": {"allowed": True, "reason": "owner of the object"},
    },
    "ResourceAccessReview": {
        "metadata": {},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "apps"}},
        "status": {"users": [{"name": "ada", "via": "owner", "reason": "owner of the object"}], "truncated": True},
    },
    "ResourceCount": {
        "metadata": {"name": "apps.management.service.sh"},
        **{"group": "management.service.sh", "resource": "apps", "resourceKind": "App"},
        **{"namespaced": False, "count": 3, "filtered": True},
    },
    "SelfSubjectAccessReviewBatch": {
        "metadata": {},
        "spec": {"reviews": [{"resourceAttributes": {"verb": "list"}}], "scope": {"projects": [{"project": "demo"}]}},
        "status": {"reviews": [{"allowed": False, "filtered": True}]},
    },
    "SubjectAccessReview": {
        "metadata": {},
        "spec": {"user": "ada", "groups": ["core"], "nonResourceAttributes": {"path": "/version", "verb": "get"}},
        "status": {"allowed": False},
    },
    "LocalSubjectAccessReview": {
        "metadata": {"namespace": "demo"},
        "spec": {"user": "ada", "resourceAttributes": {"verb": "get", "resource": "events", "namespace": "demo"}},
    },
    "SelfSubjectRulesReview": {
        "metadata": {},
        "spec": {"namespace": "demo"},
        "status": {
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}],
            "incomplete": False,
        },
    },
}


def build_example(name: str, **fields: Any) -> Object:
    """Returns a new object of the kind; `fields` replace top-level ones, and None removes one."""
    kind = BY_NAME[name]
    metadata = {"name": "demo", "namespace": "demo"} if kind.namespaced else {"name": "demo"}
    obj = {"apiVersion": kind.api_version, "kind": name, "metadata": metadata, **deepcopy(_FIELDS[name]), **fields}
    return {field: value for field, value in obj.items() if value is not None}


def build_events_v1_event() -> Object:
    """Returns a new, complete Event of `events.k8s.io`."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "demo"},
        "regarding": {"kind": "ConfigMap", "name": "x", "namespace": "demo"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "action": "Doing",
        "reason": "Started",
        "reportingController": "example.com/c",
        "reportingInstance": "i-1",
        "type": "Normal",
        "note": "it began",
    }


def build_change(new: Object, old: Object | None = None, subresource: str = "") -> Change:
    """Builds the change from `old` to `new`, or the creation of `new`."""
    verb = "create" if old is None else "update"
    return Change(verb, BY_NAME[new["kind"]], User("ada"), old, new, subresource)


def apply_defaults(new: Object, old: Object | None = None, subresource: str = "") -> Object:
    """Returns `new` with the defaults of its kind."""
    change = build_change(new, old, subresource)
    change.kind.default(change)
    return change.obj


def find_problems(new: Object, old: Object | None = None, subresource: str = "") -> list[Problem]:
    """Returns the problems that the kind finds in `new` after defaulting."""
    change = build_change(new, old, subresource)
    change.kind.default(change)
    return list(change.kind.check(change))


def problem_reasons(new: Object, old: Object | None = None, subresource: str = "") -> list[tuple[str, str]]:
    """Returns the field and reason of each problem."""
    return [(problem.field, problem.reason) for problem in find_problems(new, old, subresource)]


def computed_cells(kind: Kind, obj: Object) -> dict[str, Any]:
    """Returns the value of each column that is a function."""
    return {column.name: column.path(obj) for column in kind.columns if callable(column.path)}


INVOLVED_OBJECT = {"kind": "ConfigMap", "name": "x", "namespace": "demo"}

SERIES = {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000000Z"}


def build_event(**fields: Any) -> Object:
    return {name: value for name, value in {**build_events_v1_event(), **fields}.items() if value is not None}


def iter_kinds(kinds: Iterable[Kind] = KINDS) -> Iterator[Kind]:
    """Yields the kinds and the kinds of their actions."""
    for kind in kinds:
        yield kind
        yield from (action.kind for action in kind.actions if action.kind is not None)
