"""Malformed and unusual parts of objects: metadata, and fields with rules of their own in single kinds."""

from typing import Any

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UID = "00000000-0000-0000-0000-000000000000"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": _UID, "blockOwnerDeletion": True}
_ENTRY = {
    "manager": "x",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "time": "2020-01-01T00:00:00Z",
}
_FIELD_SETS: tuple[Any, ...] = (
    *({"f:a": {}}, {"f:a": 1}, {"x": {}}, {"k:{": {}}, {"": {}}, {".": {}}, {"i:x": {}}, {"v:": {}}, {'k:{"a":1}': {}}),
    *({"v:" + "[" * 999: {}}, None, [], "x"),
)  # fmt: skip
_MANAGED_FIELDS: tuple[Any, ...] = (
    *([{**_ENTRY, "fieldsV1": fields}] for fields in _FIELD_SETS),
    *([{**_ENTRY, "time": text}] for text in ("2016-12-31T23:59:60Z", "0001-01-01T00:00:00+23:59", "x", "")),
    *([{}], [], [None], "x", [{**_ENTRY, "manager": "\n"}], [_ENTRY] * 50),
)  # fmt: skip
METADATA: tuple[dict[str, Any], ...] = (
    *({"generateName": "fuzz-"}, {"generateName": "x" * 300}, {"generateName": "-", "name": ""}, {"name": "A"}),
    {"name": ""},
    *({"name": ".."}, {"name": "a/b"}, {"name": "x" * 254}, {"name": None}, {"namespace": "other"}),
    {"namespace": None},
    *({"finalizers": ["x"]}, {"finalizers": ["example.com/x", "example.com/x"]}),
    {"finalizers": ["foregroundDeletion"]},
    *({"ownerReferences": [_OWNER]}, {"ownerReferences": [_OWNER, _OWNER]}, {"ownerReferences": [{}]}, {"uid": _UID}),
    *({"ownerReferences": [{**_OWNER, "controller": True}, {**_OWNER, "controller": True, "uid": "2"}]}, {"uid": ""}),
    *({"labels": {"a": None}}, {"labels": {"": ""}}, {"labels": {"a/b/c": "d"}}, {"annotations": {"a": "x" * 300_000}}),
    *({"resourceVersion": version} for version in ("", "0", "1", "x", "9" * 30)),
    *({"deletionTimestamp": "2020-01-01T00:00:00Z"}, {"deletionGracePeriodSeconds": 2**63}, {"generation": -1}),
    *({"creationTimestamp": text} for text in ("", "x", "2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z")),
    *({"managedFields": entries} for entries in _MANAGED_FIELDS),
    *({"annotations": {_LAST_APPLIED: text}} for text in ("", "x", "{", "null", '{"apiVersion":"v1"}', "[" * 300)),
    {"annotations": {_LAST_APPLIED: '{"apiVersion":"v1","metadata":{"labels":{"protected":"yes"}},"data":{"a":"1"}}'}},
)  # fmt: skip


_TIME = "2020-01-01T00:00:00Z"
_DOCKER_CONFIG = (".dockerconfigjson", "kubernetes.io/dockerconfigjson")
KIND_FIELDS: dict[str, tuple[dict[str, Any], ...]] = {
    "Secret": (
        *({"type": f"kubernetes.io/{sort}"} for sort in ("tls", "ssh-auth", "basic-auth", "dockercfg")),
        *({"type": _DOCKER_CONFIG[1], "data": {_DOCKER_CONFIG[0]: data}} for data in ("", "e30=", "WzFd")),
        *({"type": "kubernetes.io/service-account-token"}, {"immutable": True}, {"stringData": {"a": "b", "a/b": ""}}),
    ),
    "ConfigMap": (
        *({"immutable": True}, {"data": {"a": "1"}, "binaryData": {"a": "AAE="}}, {"data": {"..": "", "x" * 254: ""}}),
    ),
    "Event": (
        {"eventTime": _TIME, "reportingComponent": "x", "reportingInstance": "y", "action": "z" * 200},
        *({"eventTime": _TIME}, {"series": {}}, {"series": {"count": -1, "lastObservedTime": None}}),
    ),
    "Lease": ({"spec": {"strategy": "x"}}, {"spec": {"preferredHolder": "x"}}, {"spec": {"leaseDurationSeconds": 0}}),
    "Namespace": (
        *({"spec": {"finalizers": []}}, {"spec": {"finalizers": ["kubernetes", "x/y", "-"]}}),
        {"status": {"phase": "Terminating"}},
    ),
}  # fmt: skip
"""Values that are subject to rules beyond the schema of their kind."""
