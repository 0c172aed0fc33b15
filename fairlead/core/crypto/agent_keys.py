"""The keys by which agents prove who they are (Ed25519), their join tokens, and the challenges they sign.

The server stores public keys and the digests of tokens only. A proof is about one challenge of the server, so neither
end needs to know the time of the other.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

TOKEN_PREFIX = "fljoin_"
MAX_TOKEN_CHARS = 1024
SECRET_BYTES = 32
NONCE_SECONDS = 60
CONTEXT = b"fairlead agent 1\0"
"""Begins every message that is signed, so that a signature is never one of another protocol."""

PROOF_HEADER = "x-fairlead-agent"
SESSION, JOIN, OFFER = "session", "join", "key"
"""What a signature is for; part of what is signed."""


class InvalidKey(ValueError):
    """The text is no key, token or challenge."""


def encode_bytes(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def decode_bytes(text: str) -> bytes:
    """Raises InvalidKey."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKey("not base64url") from None


def generate_private_key() -> str:
    return encode_bytes(Ed25519PrivateKey.generate().private_bytes_raw())


def find_public_key(private_key: str) -> str:
    """Raises InvalidKey."""
    return encode_bytes(_load_private(private_key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def key_id(public_key: str) -> str:
    """A short name of a key, for logs and lookups."""
    return hashlib.sha256(public_key.encode()).hexdigest()[:16]


def sign_proof(private_key: str, *parts: str) -> str:
    """Raises InvalidKey."""
    return encode_bytes(_load_private(private_key).sign(_message(parts)))


def is_proof(public_key: str, proof: str, *parts: str) -> bool:
    """Whether the owner of the key has signed exactly these parts."""
    try:
        Ed25519PublicKey.from_public_bytes(decode_bytes(public_key)).verify(decode_bytes(proof), _message(parts))
    except (InvalidKey, InvalidSignature, ValueError):
        return False
    return True


def _load_private(private_key: str) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(decode_bytes(private_key))
    except ValueError:
        raise InvalidKey("not a private key") from None


def _message(parts: tuple[str, ...]) -> bytes:
    return CONTEXT + msgspec.json.encode(parts)


class Proof(msgspec.Struct, frozen=True):
    """Says that its sender has a key of the agent of a cluster."""

    cluster: str
    key: str
    """ID of the key."""
    instance: str
    challenge: str
    signature: str

    def encode(self) -> str:
        return encode_bytes(msgspec.json.encode(self))

    def is_signed(self, public_key: str, purpose: str, *more: str) -> bool:
        parts = (purpose, self.cluster, self.key, self.instance, self.challenge, *more)
        return is_proof(public_key, self.signature, *parts)


def build_proof(private_key: str, purpose: str, cluster: str, instance: str, challenge: str, *more: str) -> Proof:
    """Raises InvalidKey."""
    key = key_id(find_public_key(private_key))
    signature = sign_proof(private_key, purpose, cluster, key, instance, challenge, *more)
    return Proof(cluster, key, instance, challenge, signature)


def parse_proof(text: str) -> Proof:
    """Raises InvalidKey."""
    try:
        return msgspec.json.decode(decode_bytes(text), type=Proof)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidKey("not a proof") from None


class JoinToken(msgspec.Struct, frozen=True):
    """What an agent needs to join: its cluster, a secret, and the fingerprint of the server's CA (empty: public)."""

    cluster: str
    secret: str
    authority: str = ""

    def __repr__(self) -> str:
        return f"JoinToken({self.cluster!r})"

    def encode(self) -> str:
        return TOKEN_PREFIX + encode_bytes(msgspec.json.encode(self))

    @property
    def digest(self) -> str:
        """What the server stores. The secret is random, so a plain hash is enough."""
        return hashlib.sha256(f"{self.cluster}\0{self.secret}".encode()).hexdigest()


def generate_token(cluster: str, authority: str) -> JoinToken:
    return JoinToken(cluster, secrets.token_urlsafe(SECRET_BYTES), authority)


def parse_token(text: str) -> JoinToken:
    """Raises InvalidKey. The message contains no part of the token."""
    if not text.startswith(TOKEN_PREFIX) or len(text) > MAX_TOKEN_CHARS:
        raise InvalidKey("not a join token")
    try:
        return msgspec.json.decode(decode_bytes(text.removeprefix(TOKEN_PREFIX)), type=JoinToken)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidKey("not a join token") from None


def authority_fingerprint(pem: str) -> str:
    """Of the CA certificate of a server; empty without one."""
    return hashlib.sha256(pem.strip().encode()).hexdigest() if pem.strip() else ""


@dataclass(frozen=True, slots=True)
class Challenges:
    """Challenges that need no storage: all processes of a server know the secret. Valid for a minute of their clock."""

    secret: bytes = field(repr=False)

    def issue(self, now: float) -> str:
        content = int(now).to_bytes(8, "big") + secrets.token_bytes(16)
        return encode_bytes(content + self._authenticate(content))

    def is_valid(self, challenge: str, now: float) -> bool:
        try:
            content = decode_bytes(challenge)
        except InvalidKey:
            return False
        issued, code = content[:24], content[24:]
        age = now - int.from_bytes(issued[:8], "big")
        return hmac.compare_digest(code, self._authenticate(issued)) and -NONCE_SECONDS <= age <= NONCE_SECONDS

    def _authenticate(self, content: bytes) -> bytes:
        return hmac.digest(self.secret, CONTEXT + content, "sha256")
