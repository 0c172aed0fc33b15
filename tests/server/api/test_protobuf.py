"""Bodies as kubectl 1.32 and newer send them."""

import base64

import pytest

from fairlead.core.body_errors import Malformed
from fairlead.server.api import protobuf

CONFIG_MAP = bytes.fromhex(
    "6b387300"
    "0a0f0a0276311209436f6e6669674d6170"
    "121f"
    "0a150a0568657865641200"
    "1a0022002a00320038004200"
    "12060a0161120131"
    "1a002200"
)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def body(kind: str, raw: bytes) -> bytes:
    types = field(1, b"v1") + field(2, kind.encode())
    return b"k8s\x00" + field(1, types) + field(2, raw)


def test_a_config_map_as_kubectl_sends_it_is_read() -> None:
    assert protobuf.decode(CONFIG_MAP) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hexed"},
        "data": {"a": "1"},
    }


def test_a_secrets_bytes_become_base64() -> None:
    raw = field(1, field(1, b"s")) + field(2, field(1, b"k") + field(2, b"\x00\xff"))
    secret = protobuf.decode(body("Secret", raw))
    assert secret["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}


def test_labels_finalizers_flags_and_times_are_read() -> None:
    moment = field(8, b"\x08\x80\x01")
    metadata = field(1, b"n") + field(11, field(1, b"a") + field(2, b"b")) + field(14, b"x.io/f") + moment
    found = protobuf.decode(body("ConfigMap", field(1, metadata) + b"\x20\x01"))
    assert found["metadata"] == {
        "name": "n",
        "labels": {"a": "b"},
        "finalizers": ["x.io/f"],
        "creationTimestamp": "1970-01-01T00:02:08Z",
    }
    assert found["immutable"] is True


def test_unknown_fields_are_passed_over() -> None:
    raw = field(1, field(1, b"n")) + bytes([15 << 3 | 5]) + b"1234" + bytes([14 << 3 | 1]) + b"12345678"
    assert protobuf.decode(body("Namespace", raw))["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        CONFIG_MAP[:-9],
        body("Pod", b""),
        body("ConfigMap", b"\x0b"),
        body("ConfigMap", b"\x08\x01"),
        body("ConfigMap", field(1, field(1, b"\xff"))),
        body("ConfigMap", field(1, field(8, field(1, b"x")))),
        b"k8s\x00" + b"\x80" * 20,
    ],
    ids=lambda data: data[:12].hex() or "nothing",
)
def test_what_is_not_such_a_body_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        protobuf.decode(data)


def test_the_number_of_fields_is_limited() -> None:
    assert protobuf.decode(body("ConfigMap", b"")[:-1] + b"\xa0\x9c\x01" + b"\x20\x01" * 10_000)["immutable"] is True
    with pytest.raises(Malformed, match="10000 fields"):
        protobuf.decode(body("ConfigMap", b"")[:-1] + b"\xa2\x9c\x01" + b"\x20\x01" * 10_001)


def bytes_of(text: str) -> bytes:
    return bytes.fromhex("6b387300" + text.replace(" ", ""))


NAMELESS = "0a10 0a00 1200 1a00 2200 2a00 3200 3800 4200"
"""Metadata as kubectl sends it: every text is there, and empty."""


def test_an_access_review_as_kubectl_sends_it_is_read() -> None:
    """`kubectl auth can-i list configmaps`: empty texts everywhere, and an empty status."""
    body = bytes_of(
        "0a32 0a17 617574686f72697a6174696f6e2e6b38732e696f2f7631 1217 53656c665375626a656374416363657373526576696577"
        f"1243 {NAMELESS} 1225 0a23 0a07 64656661756c74 1204 6c697374 1a00 2200 2a0a 636f6e6669676d617073 3200 3a00"
        "1a08 0800 1200 1a00 2000 1a00 2200"
    )
    assert protobuf.decode(body) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "list", "resource": "configmaps"}},
    }


def test_a_rules_review_as_kubectl_sends_it_is_read() -> None:
    """`kubectl auth can-i --list`."""
    body = bytes_of(
        "0a31 0a17 617574686f72697a6174696f6e2e6b38732e696f2f7631 1216 53656c665375626a65637452756c6573526576696577"
        f"1223 {NAMELESS} 1209 0a07 64656661756c74 1a04 1800 2200 1a00 2200"
    )
    assert protobuf.decode(body)["spec"] == {"namespace": "default"}


def test_the_question_who_one_is_is_read() -> None:
    """`kubectl auth whoami`."""
    body = bytes_of(
        "0a2d 0a18 61757468656e7469636174696f6e2e6b38732e696f2f7631 1211 53656c665375626a656374526576696577"
        f"121a {NAMELESS} 1206 0a04 0a00 1200 1a00 2200"
    )
    assert protobuf.decode(body) == {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def test_a_role_as_kubectl_sends_it_is_read_with_its_empty_group() -> None:
    """`kubectl create role r --verb=get --resource=configmaps --resource-name=x`."""
    body = bytes_of(
        "0a24 0a1c 726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631 1204 526f6c65"
        "122b 0a11 0a0172 1200 1a00 2200 2a00 3200 3800 4200 1216 0a03 676574 1200 1a0a 636f6e6669676d617073 2201 78"
        "1a00 2200"
    )
    assert protobuf.decode(body)["rules"] == [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"]}
    ]


def test_aggregation_and_paths_of_a_cluster_role_are_read() -> None:
    selector = field(1, field(1, b"a") + field(2, b"b")) + field(2, field(1, b"k") + field(2, b"In") + field(3, b"v"))
    raw = field(2, field(1, b"get") + field(5, b"/version")) + field(3, field(1, selector))
    found = protobuf.decode(body("ClusterRole", raw))
    assert found["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]
    expression = {"key": "k", "operator": "In", "values": ["v"]}
    assert found["aggregationRule"] == {
        "clusterRoleSelectors": [{"matchLabels": {"a": "b"}, "matchExpressions": [expression]}]
    }


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_binding_is_read(kind: str) -> None:
    subject = field(1, b"ServiceAccount") + field(2, b"") + field(3, b"robot") + field(4, b"demo")
    raw = field(2, subject) + field(3, field(1, b"rbac") + field(2, b"Role") + field(3, b"r"))
    found = protobuf.decode(body(kind, raw))
    assert found["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "demo"}]
    assert found["roleRef"] == {"apiGroup": "rbac", "kind": "Role", "name": "r"}


@pytest.mark.parametrize("kind", ["SubjectAccessReview", "LocalSubjectAccessReview"])
def test_a_review_of_somebody_is_read(kind: str) -> None:
    extra = field(5, field(1, b"k") + field(2, field(1, b"v") + field(1, b"w")))
    path = field(2, field(1, b"/x") + field(2, b"get"))
    found = protobuf.decode(body(kind, field(2, path + field(3, b"ada") + field(4, b"g") + extra + field(6, b"1"))))
    assert found["spec"] == {
        "nonResourceAttributes": {"path": "/x", "verb": "get"},
        "user": "ada",
        "groups": ["g"],
        "extra": {"k": ["v", "w"]},
        "uid": "1",
    }


def test_selectors_of_an_access_review_are_read() -> None:
    requirement = field(1, b"metadata.name") + field(2, b"In") + field(3, b"x")
    attributes = field(2, b"list") + field(8, field(2, requirement)) + field(9, field(1, b"a=b"))
    spec = protobuf.decode(body("SelfSubjectAccessReview", field(2, field(1, attributes))))["spec"]
    assert spec["resourceAttributes"] == {
        "verb": "list",
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        "labelSelector": {"rawSelector": "a=b"},
    }


def test_attributes_say_something_even_when_they_are_empty() -> None:
    spec = protobuf.decode(body("SelfSubjectAccessReview", field(2, field(1, field(1, b"")))))["spec"]
    assert spec == {"resourceAttributes": {}}


def test_a_token_is_read() -> None:
    found = protobuf.decode(body("TokenReview", field(2, field(1, b"t") + field(2, b"a") + field(2, b"b"))))
    assert found["spec"] == {"token": "t", "audiences": ["a", "b"]}


def test_options_of_a_delete_are_read_with_a_grace_period_of_nothing() -> None:
    raw = b"\x08\x00" + field(2, field(1, b"u") + field(2, b"7")) + field(4, b"Foreground") + field(5, b"All")
    assert protobuf.decode(body("DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }


def test_an_empty_delete_as_helm_sends_it_is_read() -> None:
    assert protobuf.decode(body("DeleteOptions", b"")) == {"apiVersion": "v1", "kind": "DeleteOptions"}
