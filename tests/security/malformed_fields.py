"""Parts of objects that deserve a closer look: metadata in every odd shape, and what single kinds are touchy about."""

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
_FIELDS: tuple[Any, ...] = (
    *({"f:a": {}}, {"f:a": 1}, {"x": {}}, {"k:{": {}}, {"": {}}, {".": {}}, {"i:x": {}}, {"v:": {}}, {'k:{"a":1}': {}}),
    *({"v:" + "[" * 999: {}}, None, [], "x"),
)  # fmt: skip
_RECORDS: tuple[Any, ...] = (
    *([{**_ENTRY, "fieldsV1": fields}] for fields in _FIELDS),
    *([{**_ENTRY, "time": text}] for text in ("2016-12-31T23:59:60Z", "0001-01-01T00:00:00+23:59", "x", "")),
    *([{}], [], [None], "x", [{**_ENTRY, "manager": "\n"}], [_ENTRY] * 50),
)  # fmt: skip
METADATA: tuple[dict[str, Any], ...] = (
    *({"generateName": "storm-"}, {"generateName": "x" * 300}, {"generateName": "-", "name": ""}, {"name": "A"}),
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
    *({"managedFields": entries} for entries in _RECORDS),
    *({"annotations": {_LAST_APPLIED: text}} for text in ("", "x", "{", "null", '{"apiVersion":"v1"}', "[" * 300)),
    {"annotations": {_LAST_APPLIED: '{"apiVersion":"v1","metadata":{"labels":{"kept":"yes"}},"data":{"a":"1"}}'}},
)  # fmt: skip


_MOMENT = "2020-01-01T00:00:00Z"
_PACKED = (".dockerconfigjson", "kubernetes.io/dockerconfigjson")
PARTS: dict[str, tuple[dict[str, Any], ...]] = {
    "Secret": (
        *({"type": f"kubernetes.io/{sort}"} for sort in ("tls", "ssh-auth", "basic-auth", "dockercfg")),
        *({"type": _PACKED[1], "data": {_PACKED[0]: data}} for data in ("", "e30=", "WzFd")),
        *({"type": "kubernetes.io/service-account-token"}, {"immutable": True}, {"stringData": {"a": "b", "a/b": ""}}),
    ),
    "ConfigMap": (
        *({"immutable": True}, {"data": {"a": "1"}, "binaryData": {"a": "AAE="}}, {"data": {"..": "", "x" * 254: ""}}),
    ),
    "Event": (
        {"eventTime": _MOMENT, "reportingComponent": "x", "reportingInstance": "y", "action": "z" * 200},
        *({"eventTime": _MOMENT}, {"series": {}}, {"series": {"count": -1, "lastObservedTime": None}}),
    ),
    "Lease": ({"spec": {"strategy": "x"}}, {"spec": {"preferredHolder": "x"}}, {"spec": {"leaseDurationSeconds": 0}}),
    "Namespace": (
        *({"spec": {"finalizers": []}}, {"spec": {"finalizers": ["kubernetes", "x/y", "-"]}}),
        {"status": {"phase": "Terminating"}},
    ),
}  # fmt: skip
"""What a schema does not tell: values that make a kind look closer."""
