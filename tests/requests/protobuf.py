"""Encodes Kubernetes protobuf for a few kinds by hand, so that every part of it can be malformed."""

from random import Random

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"


def build_body(random: Random) -> bytes:
    """Builds a ConfigMap, Secret or Namespace, often malformed."""
    kind = random.choice((b"ConfigMap", b"Secret", b"Namespace", b"Event", b"", b"\xff"))
    metadata = encode_field(1, b"fuzz") + encode_field(
        8, _encode_varint_field(1, random.choice((0, 1, 2**31, 2**40, 2**62, 2**63, 2**64 - 1, 2**70)))
    )
    metadata += encode_field(random.choice((11, 12)), encode_field(1, b"k") + encode_field(2, b"v")) + encode_field(
        14, b"example.com/x"
    )
    content = encode_field(1, metadata) + encode_field(
        2, encode_field(1, random.choice((b"a", b"\xff", b""))) + encode_field(2, b"b")
    )
    content += random.choice(
        (
            b"",
            _encode_varint_field(4, 1),
            encode_field(4, b"x"),
            _encode_varint_field(1, 1),
            b"\x0b",
            b"\xff" * 20,
            encode_field(3, b"\x00\xff"),
        )
    )
    encoded = encode_envelope(kind, content)
    if random.random() < 0.3:
        at = random.randrange(len(encoded))
        return encoded[:at] + random.choice((b"", b"\x00", b"\xff", random.randbytes(3))) + encoded[at + 1 :]
    return encoded


def encode_envelope(kind: bytes, content: bytes) -> bytes:
    return b"k8s\x00" + encode_field(1, encode_field(1, b"v1") + encode_field(2, kind)) + encode_field(2, content)


def encode_field(number: int, value: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*pieces, value))


def _encode_varint_field(number: int, value: int) -> bytes:
    return _encode_varint(number << 3) + _encode_varint(value)
