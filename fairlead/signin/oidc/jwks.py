"""Key sets of issuers (JWKS, RFC 7517).

Only the public parameters of a key are read, and a key is used with one algorithm only: the one that the token names,
if the key's type, curve, `alg`, `use` and `key_ops` allow it. Keys that cannot be used are ignored, as the RFC demands,
but a set that is too large is an error, so that the last good set stays in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from fairlead.core.objects import Object
from fairlead.signin.oidc.reasons import ProviderError, Reason, TokenRejected

MAX_KEYS = 100
MAX_KEY_ID_LENGTH = 1_024
MAX_PARAMETER_LENGTH = 4_096
"""Of one parameter of a key, in base64url: enough for RSA keys of 16,384 bits, which are then rejected by size."""
RSA_BITS = range(2_048, 8_193)
"""Short keys can be broken; verifying with longer ones takes long."""
MAX_RSA_EXPONENT_BITS = 33
_CURVES = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}
_PUBLIC_PARAMETERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, bound to one algorithm. `curve` is empty for RSA."""

    jwk: jwt.PyJWK
    algorithm: str
    curve: str


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer, as published. Keys are parsed when they are used first."""

    published: tuple[Object, ...]
    parsed: dict[tuple[int, str], VerificationKey] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def parse(document: Object) -> "KeySet":
        """Raises ProviderError unless the document is a key set of an acceptable size."""
        keys = document.get("keys")
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            message = f"the key set of the provider must be a list of at most {MAX_KEYS} keys"
            raise ProviderError(Reason.JWKS_INVALID, message)
        usable = tuple(each for each in keys if isinstance(each, dict) and _is_plain(each))
        if not usable:
            raise ProviderError(Reason.JWKS_INVALID, "the key set of the provider has no usable key")
        return KeySet(usable)

    def has_key_id(self, kid: str) -> bool:
        return any(each.get("kid") == kid for each in self.published)

    def find(self, kid: str | None, algorithm: str) -> VerificationKey:
        """Returns the key for a token. Without a key id, it must be the only one for that algorithm."""
        named = [place for place, each in enumerate(self.published) if kid is None or each.get("kid") == kid]
        if not named:
            raise TokenRejected(Reason.UNKNOWN_KEY, "the provider has no key with the token's key id")
        fitting = [place for place in named if _fits(self.published[place], algorithm)]
        if len(fitting) != 1:
            message = "the provider has no key, or several, for the token's key id and algorithm"
            raise TokenRejected(Reason.UNKNOWN_KEY, message)
        place = fitting[0]
        key = self.parsed.get((place, algorithm))
        if key is None:
            key = self.parsed[(place, algorithm)] = _parse_key(self.published[place], algorithm)
        return key


def _is_plain(key: Object) -> bool:
    """Whether the key has a known type, and all its public parameters as strings of an acceptable length."""
    names = _PUBLIC_PARAMETERS.get(key["kty"]) if isinstance(key.get("kty"), str) else None
    if names is None:
        return False
    kid = key.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KEY_ID_LENGTH):
        return False
    return all(isinstance(key.get(name), str) and 0 < len(key[name]) <= MAX_PARAMETER_LENGTH for name in names)


def _fits(key: Mapping[str, object], algorithm: str) -> bool:
    """Whether the key may verify signatures with this algorithm."""
    if key.get("use") not in (None, "sig") or key.get("alg") not in (None, *_names_of(algorithm, key)):
        return False
    operations = key.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return False
    if algorithm.startswith(("RS", "PS")):
        return key["kty"] == "RSA"
    kind = "OKP" if algorithm == "EdDSA" else "EC"
    return key["kty"] == kind and key.get("crv") in _CURVES.get(algorithm, ())


def _names_of(algorithm: str, key: Mapping[str, object]) -> tuple[str, ...]:
    """How a key may name the algorithm: RFC 9864 has names for EdDSA with a curve."""
    return (algorithm, str(key.get("crv"))) if algorithm == "EdDSA" else (algorithm,)


def _parse_key(key: Object, algorithm: str) -> VerificationKey:
    public = {name: key[name] for name in ("kty", *_PUBLIC_PARAMETERS[key["kty"]])}
    try:
        parsed = jwt.PyJWK(public, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        raise TokenRejected(Reason.UNUSABLE_KEY, "the provider's key cannot be parsed") from None
    if isinstance(parsed.key, RSAPublicKey):
        exponent = parsed.key.public_numbers().e
        if parsed.key.key_size not in RSA_BITS or exponent.bit_length() > MAX_RSA_EXPONENT_BITS:
            raise TokenRejected(Reason.UNUSABLE_KEY, "the provider's RSA key is too short or too long")
    return VerificationKey(parsed, algorithm, public.get("crv", ""))
