"""Kubernetes' protobuf for a few kinds, by hand, so that it can be wrong in every place."""

from random import Random

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"


def body(random: Random) -> bytes:
    """A ConfigMap, Secret or Namespace, or nearly one."""
    kind = random.choice((b"ConfigMap", b"Secret", b"Namespace", b"Event", b"", b"\xff"))
    metadata = field(1, b"storm") + field(
        8, _number(1, random.choice((0, 1, 2**31, 2**40, 2**62, 2**63, 2**64 - 1, 2**70)))
    )
    metadata += field(random.choice((11, 12)), field(1, b"k") + field(2, b"v")) + field(14, b"example.com/x")
    content = field(1, metadata) + field(2, field(1, random.choice((b"a", b"\xff", b""))) + field(2, b"b"))
    content += random.choice(
        (b"", _number(4, 1), field(4, b"x"), _number(1, 1), b"\x0b", b"\xff" * 20, field(3, b"\x00\xff"))
    )
    whole = envelope(kind, content)
    if random.random() < 0.3:
        at = random.randrange(len(whole))
        return whole[:at] + random.choice((b"", b"\x00", b"\xff", random.randbytes(3))) + whole[at + 1 :]
    return whole


def envelope(kind: bytes, content: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind)) + field(2, content)


def field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*pieces, value))


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)
