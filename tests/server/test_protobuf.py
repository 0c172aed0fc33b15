"""Bodies as kubectl 1.32 and newer send them."""

import base64

import pytest

from fairlead.core.malformed import Malformed
from fairlead.server import protobuf

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
