"""A corpus of ID tokens, genuine and forged, with the expected verdict for each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization

from fairlead.signin.oidc.tokens import Reason
from tests.harness.openid_issuer import access_token_hash, encode_part, private_key, public_jwk, sign

CLIENT, NONCE, ACCESS_TOKEN = "fairlead", "n-0S6_WzA2Mj", "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y"


@dataclass(frozen=True, slots=True)
class Case:
    """`token` is built with the claims of a genuine token. `reason` is None for tokens that are accepted."""

    name: str
    token: Callable[[dict[str, Any]], str]
    reason: Reason | None


def genuine_claims(issuer: str, now: datetime) -> dict[str, Any]:
    moment = int(now.timestamp())
    return {"iss": issuer, "sub": "248289761001", "aud": CLIENT, "exp": moment + 300, "iat": moment, "nonce": NONCE}


def changed(name: str, reason: Reason | None, **changes: Any) -> Case:
    """A token with other claims; None removes a claim, and a function computes the claim from that of the token."""

    def build(claims: dict[str, Any]) -> str:
        values = {key: value(claims) if callable(value) else value for key, value in changes.items()}
        return sign({key: value for key, value in {**claims, **values}.items() if value is not None})

    return Case(name, build, reason)


def headed(name: str, reason: Reason | None, key: str = "rsa", **header: Any) -> Case:
    return Case(name, lambda claims: sign(claims, key, header), reason)


def raw(name: str, reason: Reason, payload: Callable[[dict[str, Any]], bytes]) -> Case:
    """A correctly signed token with exactly these bytes as its payload."""
    return Case(name, lambda claims: sign(payload(claims)), reason)


def _unsigned(claims: dict[str, Any], algorithm: str = "none", signature: str = "") -> str:
    header = json.dumps({"alg": algorithm, "typ": "JWT", "kid": "rsa"}).encode()
    return f"{encode_part(header)}.{encode_part(json.dumps(claims).encode())}.{signature}"


def _signed_with_public_key(claims: dict[str, Any], algorithm: str = "HS256") -> str:
    """HMAC with the public key as its secret, which a verifier might find in the key set."""
    pem = (
        private_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    content = _unsigned(claims, algorithm).rpartition(".")[0]
    hashed = jwt.algorithms.HMACAlgorithm({"HS256": jwt.algorithms.HMACAlgorithm.SHA256}[algorithm])
    return f"{content}.{encode_part(hashed.sign(content.encode(), pem))}"


def _flipped(claims: dict[str, Any]) -> str:
    content, _, signature = sign(claims).rpartition(".")
    return f"{content}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"


def _other_payload(claims: dict[str, Any]) -> str:
    header, _, signature = sign(claims).split(".")
    return f"{header}.{encode_part(json.dumps({**claims, 'sub': 'admin'}).encode())}.{signature}"


def _surplus_bits(claims: dict[str, Any]) -> str:
    """The same signature in another encoding: its last character has unused bits."""
    token = sign(claims)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) + 1]


def _duplicate(claims: dict[str, Any], extra: str) -> bytes:
    return (json.dumps(claims)[:-1] + f", {extra}}}").encode()


SIGNATURES = [
    Case("genuine", sign, None),
    headed("elliptic curve", None, "ec"),
    headed("edwards curve", None, "ed"),
    headed("probabilistic RSA", None, alg="PS256"),
    headed("type in upper case", None, typ="JWT"),
    headed("without type", None, typ=None),
    headed("certificate thumbprint", None, x5t="abc"),
    Case("alg none", _unsigned, Reason.TOKEN_MALFORMED),
    Case("alg none with a signature", lambda claims: _unsigned(claims, "none", "AAAA"), Reason.ALGORITHM),
    Case("alg None", lambda claims: _unsigned(claims, "nOnE", "AAAA"), Reason.ALGORITHM),
    Case("HS256 with the public key", _signed_with_public_key, Reason.ALGORITHM),
    Case("no signature", lambda claims: _unsigned(claims, "RS256"), Reason.TOKEN_MALFORMED),
    Case("a changed signature", _flipped, Reason.SIGNATURE),
    Case("a changed payload", _other_payload, Reason.SIGNATURE),
    Case("surplus bits in the signature", _surplus_bits, Reason.TOKEN_MALFORMED),
    headed("a key of an attacker with the id of the provider's", Reason.SIGNATURE, "rsa9", kid="rsa"),
    headed("an unknown key id", Reason.UNKNOWN_KEY, "rsa9", kid="rsa9"),
    headed("a key id that is a number", Reason.TOKEN_MALFORMED, kid=7),
    headed("jwk", Reason.KEY_IN_HEADER, "rsa9", kid="rsa", jwk=public_jwk("rsa9")),
    headed("x5c", Reason.KEY_IN_HEADER, "rsa9", kid="rsa", x5c=["MIIB"]),
    headed("jku", Reason.SIGNATURE, "rsa9", kid="rsa", jku="https://evil.example/keys"),
    headed("x5u", Reason.SIGNATURE, "rsa9", kid="rsa", x5u="https://evil.example/chain"),
    headed("unknown crit", Reason.CRITICAL_HEADER, crit=["x"], x=1),
    headed("empty crit", Reason.CRITICAL_HEADER, crit=[]),
    headed("b64", Reason.CRITICAL_HEADER, crit=["b64"], b64=False),
    headed("another algorithm of the same key family", Reason.UNKNOWN_KEY, "ec", kid="rsa"),
    headed("an access token", Reason.TOKEN_TYPE, typ="at+jwt"),
    headed("a logout token", Reason.TOKEN_TYPE, typ="logout+jwt"),
    headed("an access token, long form", Reason.TOKEN_TYPE, typ="application/at+JWT"),
    headed("a type that is no string", Reason.TOKEN_TYPE, typ=["JWT"]),
]

CLAIMS = [
    changed("audience as list", None, aud=[CLIENT]),
    changed("two audiences with azp", None, aud=[CLIENT, "other"], azp=CLIENT),
    changed("azp of this client", None, azp=CLIENT),
    changed("two audiences without azp", Reason.WRONG_PARTY, aud=[CLIENT, "other"]),
    changed("two audiences with another azp", Reason.WRONG_PARTY, aud=[CLIENT, "other"], azp="other"),
    changed("the same audience twice", Reason.WRONG_PARTY, aud=[CLIENT, CLIENT]),
    changed("another azp", Reason.WRONG_PARTY, azp="other"),
    changed("an azp that is a list", Reason.WRONG_PARTY, azp=[CLIENT]),
    changed("another audience", Reason.WRONG_AUDIENCE, aud="other"),
    changed("an audience with this one as its beginning", Reason.WRONG_AUDIENCE, aud=CLIENT + "-2"),
    changed("an audience in upper case", Reason.WRONG_AUDIENCE, aud=CLIENT.upper()),
    changed("no audience", Reason.WRONG_AUDIENCE, aud=None),
    changed("an empty list of audiences", Reason.WRONG_AUDIENCE, aud=[]),
    changed("an audience that is an object", Reason.WRONG_AUDIENCE, aud={CLIENT: True}),
    changed("an audience list with a number", Reason.WRONG_AUDIENCE, aud=[CLIENT, 1], azp=CLIENT),
    raw("aud twice", Reason.TOKEN_MALFORMED, lambda claims: _duplicate(claims, '"aud": "other"')),
    raw("sub twice, escaped", Reason.TOKEN_MALFORMED, lambda claims: _duplicate(claims, '"s\\u0075b": "admin"')),
    changed("issuer with a slash", Reason.WRONG_ISSUER, iss=lambda claims: claims["iss"] + "/"),
    changed("issuer in upper case", Reason.WRONG_ISSUER, iss=lambda claims: claims["iss"].upper()),
    changed("issuer with http", Reason.WRONG_ISSUER, iss=lambda claims: claims["iss"].replace("https", "http")),
    changed("another issuer", Reason.WRONG_ISSUER, iss="https://evil.example"),
    changed("issuer in a list", Reason.WRONG_ISSUER, iss=lambda claims: [claims["iss"]]),
    changed("no issuer", Reason.WRONG_ISSUER, iss=None),
    changed("no subject", Reason.INVALID_SUBJECT, sub=None),
    changed("an empty subject", Reason.INVALID_SUBJECT, sub=""),
    changed("a subject that is a number", Reason.INVALID_SUBJECT, sub=7),
    changed("a subject with a line feed", Reason.INVALID_SUBJECT, sub="a\nb"),
    changed("a long subject", Reason.INVALID_SUBJECT, sub="a" * 2_000),
    changed("no nonce", Reason.WRONG_NONCE, nonce=None),
    changed("another nonce", Reason.WRONG_NONCE, nonce="other"),
    changed("a nonce in a list", Reason.WRONG_NONCE, nonce=[NONCE]),
    changed("a nonce with a surrogate", Reason.WRONG_NONCE, nonce=NONCE + "é"),
    changed("at_hash", None, at_hash=access_token_hash(ACCESS_TOKEN)),
    changed("at_hash of another token", Reason.WRONG_ACCESS_TOKEN, at_hash=access_token_hash("other")),
    changed("at_hash by another hash", Reason.WRONG_ACCESS_TOKEN, at_hash=access_token_hash(ACCESS_TOKEN, "sha512")),
    changed("an empty at_hash", Reason.WRONG_ACCESS_TOKEN, at_hash=""),
    changed("an at_hash that is a number", Reason.WRONG_ACCESS_TOKEN, at_hash=7),
    changed("a logout event", Reason.TOKEN_TYPE, events={"http://schemas.openid.net/event/backchannel-logout": {}}),
    changed("an access token by its claim", Reason.TOKEN_TYPE, typ="Bearer"),
]

TIMES = [
    changed("expired 59 seconds ago", None, exp=lambda claims: claims["iat"] - 59),
    changed("expired 60 seconds ago", Reason.EXPIRED, exp=lambda claims: claims["iat"] - 60),
    changed("expired long ago", Reason.EXPIRED, exp=1),
    changed("not before 60 seconds from now", None, nbf=lambda claims: claims["iat"] + 60),
    changed("not before 61 seconds from now", Reason.NOT_YET_VALID, nbf=lambda claims: claims["iat"] + 61),
    changed("issued 60 seconds from now", None, iat=lambda claims: claims["iat"] + 60),
    changed("issued 61 seconds from now", Reason.ISSUED_IN_FUTURE, iat=lambda claims: claims["iat"] + 61),
    changed("a fraction of a second", None, exp=lambda claims: claims["exp"] + 0.5),
    changed("no exp", Reason.INVALID_TIME, exp=None),
    changed("no iat", Reason.INVALID_TIME, iat=None),
    changed("exp true", Reason.INVALID_TIME, exp=True),
    changed("iat false", Reason.INVALID_TIME, iat=False),
    changed("exp as text", Reason.INVALID_TIME, exp=lambda claims: str(claims["exp"])),
    changed("nbf as a list", Reason.INVALID_TIME, nbf=[1]),
    changed("exp 1e300", Reason.INVALID_TIME, exp=1e300),
    changed("exp beyond the year 9999", Reason.INVALID_TIME, exp=253_402_300_800),
    changed("exp negative", Reason.INVALID_TIME, exp=-1),
    raw("exp 1e400", Reason.TOKEN_MALFORMED, lambda claims: _with_exp(claims, "1e400")),
    raw("exp Infinity", Reason.TOKEN_MALFORMED, lambda claims: _with_exp(claims, "Infinity")),
    raw("exp NaN", Reason.TOKEN_MALFORMED, lambda claims: _with_exp(claims, "NaN")),
    raw("exp with 5,000 digits", Reason.TOKEN_MALFORMED, lambda claims: _with_exp(claims, "9" * 5_000)),
]


def _with_exp(claims: dict[str, Any], text: str) -> bytes:
    return json.dumps({**claims, "exp": 987654321}).replace("987654321", text).encode()


SHAPES = [
    changed("15 levels of nesting", None, deep=json.loads("[" * 15 + "]" * 15)),
    changed("16 levels of nesting", Reason.TOKEN_TOO_DEEP, deep=json.loads("[" * 16 + "]" * 16)),
    raw("5,000 levels of nesting", Reason.TOKEN_TOO_DEEP, lambda claims: b"[" * 5_000 + b"]" * 5_000),
    raw("an unclosed nesting", Reason.TOKEN_TOO_DEEP, lambda claims: b'{"a":' * 2_000),
    changed("over 16 KiB", Reason.TOKEN_TOO_LARGE, pad="x" * 16_384),
    Case("10 MB", lambda claims: sign(claims) + "A" * 10_000_000, Reason.TOKEN_TOO_LARGE),
    raw("a list as claims", Reason.TOKEN_MALFORMED, lambda claims: b"[]"),
    raw("claims that are not JSON", Reason.TOKEN_MALFORMED, lambda claims: b"sub=admin"),
    raw("claims that are not UTF-8", Reason.TOKEN_MALFORMED, lambda claims: b'{"sub": "\xff"}'),
    Case("two parts", lambda claims: sign(claims).rpartition(".")[0], Reason.TOKEN_MALFORMED),
    Case("five parts", lambda claims: sign(claims) + ".AA.AA", Reason.TOKEN_MALFORMED),
    Case("white space", lambda claims: sign(claims) + "\n", Reason.TOKEN_MALFORMED),
    Case("padding", lambda claims: sign(claims) + "==", Reason.TOKEN_MALFORMED),
    Case("the empty string", lambda claims: "", Reason.TOKEN_MALFORMED),
    Case("JSON serialization", lambda claims: json.dumps({"payload": "", "signatures": []}), Reason.TOKEN_MALFORMED),
]

CORPUS = [*SIGNATURES, *CLAIMS, *TIMES, *SHAPES]
