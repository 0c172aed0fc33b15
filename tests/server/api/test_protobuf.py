"""server.api.protobuf: request bodies of kubectl 1.32 and newer."""

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


def encode_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def encode_body(kind: str, raw: bytes) -> bytes:
    types = encode_field(1, b"v1") + encode_field(2, kind.encode())
    return b"k8s\x00" + encode_field(1, types) + encode_field(2, raw)


def test_a_config_map_from_kubectl_is_decoded() -> None:
    assert protobuf.decode(CONFIG_MAP) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hexed"},
        "data": {"a": "1"},
    }


def test_the_data_of_a_secret_becomes_base64() -> None:
    raw = encode_field(1, encode_field(1, b"s")) + encode_field(2, encode_field(1, b"k") + encode_field(2, b"\x00\xff"))
    secret = protobuf.decode(encode_body("Secret", raw))
    assert secret["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}


def test_labels_finalizers_booleans_and_timestamps_are_decoded() -> None:
    moment = encode_field(8, b"\x08\x80\x01")
    metadata = (
        encode_field(1, b"n")
        + encode_field(11, encode_field(1, b"a") + encode_field(2, b"b"))
        + encode_field(14, b"x.io/f")
        + moment
    )
    decoded = protobuf.decode(encode_body("ConfigMap", encode_field(1, metadata) + b"\x20\x01"))
    assert decoded["metadata"] == {
        "name": "n",
        "labels": {"a": "b"},
        "finalizers": ["x.io/f"],
        "creationTimestamp": "1970-01-01T00:02:08Z",
    }
    assert decoded["immutable"] is True


def test_unknown_fields_are_ignored() -> None:
    raw = encode_field(1, encode_field(1, b"n")) + bytes([15 << 3 | 5]) + b"1234" + bytes([14 << 3 | 1]) + b"12345678"
    assert protobuf.decode(encode_body("Namespace", raw))["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        CONFIG_MAP[:-9],
        encode_body("Pod", b""),
        encode_body("ConfigMap", b"\x0b"),
        encode_body("ConfigMap", b"\x08\x01"),
        encode_body("ConfigMap", encode_field(1, encode_field(1, b"\xff"))),
        encode_body("ConfigMap", encode_field(1, encode_field(8, encode_field(1, b"x")))),
        b"k8s\x00" + b"\x80" * 20,
    ],
    ids=lambda data: data[:12].hex() or "empty",
)
def test_an_invalid_body_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        protobuf.decode(data)


def test_the_number_of_fields_is_limited() -> None:
    assert (
        protobuf.decode(encode_body("ConfigMap", b"")[:-1] + b"\xa0\x9c\x01" + b"\x20\x01" * 10_000)["immutable"]
        is True
    )
    with pytest.raises(Malformed, match="10000 fields"):
        protobuf.decode(encode_body("ConfigMap", b"")[:-1] + b"\xa2\x9c\x01" + b"\x20\x01" * 10_001)


def decode_hex(text: str) -> bytes:
    return bytes.fromhex("6b387300" + text.replace(" ", ""))


EMPTY_METADATA = "0a10 0a00 1200 1a00 2200 2a00 3200 3800 4200"
"""Metadata as kubectl sends it: every string is present and empty."""


def test_an_access_review_from_kubectl_is_decoded() -> None:
    """`kubectl auth can-i list configmaps`: empty strings everywhere, and an empty status."""
    data = decode_hex(
        "0a32 0a17 617574686f72697a6174696f6e2e6b38732e696f2f7631 1217 53656c665375626a656374416363657373526576696577"
        f"1243 {EMPTY_METADATA} 1225 0a23 0a07 64656661756c74 1204 6c697374"
        "1a00 2200 2a0a 636f6e6669676d617073 3200 3a00"
        "1a08 0800 1200 1a00 2000 1a00 2200"
    )
    assert protobuf.decode(data) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "list", "resource": "configmaps"}},
    }


def test_a_rules_review_from_kubectl_is_decoded() -> None:
    """`kubectl auth can-i --list`."""
    data = decode_hex(
        "0a31 0a17 617574686f72697a6174696f6e2e6b38732e696f2f7631 1216 53656c665375626a65637452756c6573526576696577"
        f"1223 {EMPTY_METADATA} 1209 0a07 64656661756c74 1a04 1800 2200 1a00 2200"
    )
    assert protobuf.decode(data)["spec"] == {"namespace": "default"}


def test_a_self_subject_review_from_kubectl_is_decoded() -> None:
    """`kubectl auth whoami`."""
    data = decode_hex(
        "0a2d 0a18 61757468656e7469636174696f6e2e6b38732e696f2f7631 1211 53656c665375626a656374526576696577"
        f"121a {EMPTY_METADATA} 1206 0a04 0a00 1200 1a00 2200"
    )
    assert protobuf.decode(data) == {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def test_a_role_from_kubectl_is_decoded_with_its_empty_api_group() -> None:
    """`kubectl create role r --verb=get --resource=configmaps --resource-name=x`."""
    data = decode_hex(
        "0a24 0a1c 726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631 1204 526f6c65"
        "122b 0a11 0a0172 1200 1a00 2200 2a00 3200 3800 4200 1216 0a03 676574 1200 1a0a 636f6e6669676d617073 2201 78"
        "1a00 2200"
    )
    assert protobuf.decode(data)["rules"] == [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"]}
    ]


def test_aggregation_rules_and_non_resource_urls_of_a_cluster_role_are_decoded() -> None:
    selector = encode_field(1, encode_field(1, b"a") + encode_field(2, b"b")) + encode_field(
        2, encode_field(1, b"k") + encode_field(2, b"In") + encode_field(3, b"v")
    )
    raw = encode_field(2, encode_field(1, b"get") + encode_field(5, b"/version")) + encode_field(
        3, encode_field(1, selector)
    )
    decoded = protobuf.decode(encode_body("ClusterRole", raw))
    assert decoded["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]
    expression = {"key": "k", "operator": "In", "values": ["v"]}
    assert decoded["aggregationRule"] == {
        "clusterRoleSelectors": [{"matchLabels": {"a": "b"}, "matchExpressions": [expression]}]
    }


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_role_binding_is_decoded(kind: str) -> None:
    subject = (
        encode_field(1, b"ServiceAccount") + encode_field(2, b"") + encode_field(3, b"robot") + encode_field(4, b"demo")
    )
    raw = encode_field(2, subject) + encode_field(
        3, encode_field(1, b"rbac") + encode_field(2, b"Role") + encode_field(3, b"r")
    )
    decoded = protobuf.decode(encode_body(kind, raw))
    assert decoded["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "demo"}]
    assert decoded["roleRef"] == {"apiGroup": "rbac", "kind": "Role", "name": "r"}


@pytest.mark.parametrize("kind", ["SubjectAccessReview", "LocalSubjectAccessReview"])
def test_a_subject_access_review_is_decoded(kind: str) -> None:
    extra = encode_field(5, encode_field(1, b"k") + encode_field(2, encode_field(1, b"v") + encode_field(1, b"w")))
    path = encode_field(2, encode_field(1, b"/x") + encode_field(2, b"get"))
    decoded = protobuf.decode(
        encode_body(
            kind,
            encode_field(2, path + encode_field(3, b"ada") + encode_field(4, b"g") + extra + encode_field(6, b"1")),
        )
    )
    assert decoded["spec"] == {
        "nonResourceAttributes": {"path": "/x", "verb": "get"},
        "user": "ada",
        "groups": ["g"],
        "extra": {"k": ["v", "w"]},
        "uid": "1",
    }


def test_selectors_of_an_access_review_are_decoded() -> None:
    requirement = encode_field(1, b"metadata.name") + encode_field(2, b"In") + encode_field(3, b"x")
    attributes = (
        encode_field(2, b"list")
        + encode_field(8, encode_field(2, requirement))
        + encode_field(9, encode_field(1, b"a=b"))
    )
    spec = protobuf.decode(encode_body("SelfSubjectAccessReview", encode_field(2, encode_field(1, attributes))))["spec"]
    assert spec["resourceAttributes"] == {
        "verb": "list",
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
        "labelSelector": {"rawSelector": "a=b"},
    }


def test_empty_resource_attributes_are_kept() -> None:
    spec = protobuf.decode(
        encode_body("SelfSubjectAccessReview", encode_field(2, encode_field(1, encode_field(1, b""))))
    )["spec"]
    assert spec == {"resourceAttributes": {}}


def test_a_token_review_is_decoded() -> None:
    decoded = protobuf.decode(
        encode_body(
            "TokenReview", encode_field(2, encode_field(1, b"t") + encode_field(2, b"a") + encode_field(2, b"b"))
        )
    )
    assert decoded["spec"] == {"token": "t", "audiences": ["a", "b"]}


def test_delete_options_are_decoded_with_a_grace_period_of_zero() -> None:
    raw = (
        b"\x08\x00"
        + encode_field(2, encode_field(1, b"u") + encode_field(2, b"7"))
        + encode_field(4, b"Foreground")
        + encode_field(5, b"All")
    )
    assert protobuf.decode(encode_body("DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }


def test_empty_delete_options_from_helm_are_decoded() -> None:
    assert protobuf.decode(encode_body("DeleteOptions", b"")) == {"apiVersion": "v1", "kind": "DeleteOptions"}
