"""SSH user certificates, and the keys that sign them. Pure functions; `authn/ssh_authority.py` stores the keys."""

from dataclasses import dataclass
from datetime import datetime

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    SSHCertificateBuilder,
    SSHCertificateType,
    load_ssh_private_key,
    load_ssh_public_key,
)

MAX_PUBLIC_KEY_CHARS = 4096
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
EXTENSIONS = (b"permit-agent-forwarding", b"permit-port-forwarding", b"permit-pty")
"""In alphabetical order, as OpenSSH requires. What is not listed, such as X11, is not permitted."""

PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey


class InvalidSshKey(ValueError):
    """A key that cannot be parsed, or is not accepted. The message says what is, and contains nothing of the key."""


@dataclass(frozen=True, slots=True)
class CertificateFields:
    """What a certificate says about its key. `key_id` is for the logs of SSH servers."""

    principal: str
    key_id: str
    serial: int
    valid_after: datetime
    valid_before: datetime


def generate_private_key() -> str:
    """An Ed25519 key, in the format of OpenSSH."""
    return encode_private_key(Ed25519PrivateKey.generate()).decode()


def encode_private_key(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def encode_public_key(key: PublicKey) -> str:
    """One line: the type and the key in base64."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def find_public_key(private: str) -> str:
    """The public key of a private one, as one line. Raises InvalidSshKey."""
    return encode_public_key(_load_private_key(private).public_key())


def parse_public_key(text: str) -> PublicKey:
    """Parses one line with a public key, with or without a comment. Raises InvalidSshKey."""
    accepted = "use a public key in the format of OpenSSH: Ed25519, ECDSA, or RSA with 2048 to 8192 bits"
    parts = text.split()
    if len(text) > MAX_PUBLIC_KEY_CHARS or not text.isascii() or len(parts) < 2 or "\n" in text.strip():
        raise InvalidSshKey(accepted)
    try:
        key = load_ssh_public_key(" ".join(parts[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidSshKey(accepted) from None
    is_rsa = isinstance(key, RSAPublicKey) and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS
    if not is_rsa and not isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey):
        raise InvalidSshKey(accepted)
    return key  # type: ignore[return-value]  # one of the three types


def sign_user_certificate(private: str, public: PublicKey, fields: CertificateFields) -> str:
    """The certificate as one line, as OpenSSH stores it in `id_ed25519-cert.pub`."""
    builder = (
        SSHCertificateBuilder()
        .public_key(public)
        .type(SSHCertificateType.USER)
        .serial(fields.serial)
        .key_id(fields.key_id.encode())
        .valid_principals([fields.principal.encode()])
        .valid_after(int(fields.valid_after.timestamp()))
        .valid_before(int(fields.valid_before.timestamp()))
    )
    for name in EXTENSIONS:
        builder = builder.add_extension(name, b"")
    return builder.sign(_load_private_key(private)).public_bytes().decode()


def _load_private_key(private: str) -> Ed25519PrivateKey:
    try:
        key = load_ssh_private_key(private.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidSshKey("this is not a private key in the format of OpenSSH") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidSshKey("this is not an Ed25519 key")
    return key
