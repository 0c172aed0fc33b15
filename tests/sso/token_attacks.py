"""ID tokens that must sign no one in: forged ones, and right ones that are for another purpose."""

import time
from typing import Any

import orjson

from tests.sso.attacks import claims, token
from tests.sso.providers.forging import Forger
from tests.sso.providers.tokens import (
    ABSENT,
    ec_key,
    encode,
    hash_half,
    rsa_key,
    sign,
    sign_bytes,
    sign_with_public_key,
    unsigned,
)

ATTACKER = rsa_key(9)
REJECTED = "token_rejected"
NO_TOKEN = "the response has no ID token"
NOW = time.time()


def change_payload(forger: Forger, right: dict[str, Any]) -> str:
    header, _, signature = sign(right, forger.key).split(".")
    return f"{header}.{encode(orjson.dumps(right | {'sub': 'admin'}))}.{signature}"


def strip_signature(forger: Forger, right: dict[str, Any]) -> str:
    return sign(right, forger.key).rpartition(".")[0] + "."


def name_twice(forger: Forger, right: dict[str, Any]) -> str:
    payload = orjson.dumps(right)[:-1] + b',"sub":"admin"}'
    return sign_bytes(payload, forger.key, {"alg": "RS256", "kid": forger.key.kid})


def infinite_expiry(forger: Forger, right: dict[str, Any]) -> str:
    payload = orjson.dumps(right).replace(str(right["exp"]).encode(), b"1e400")
    return sign_bytes(payload, forger.key, {"alg": "RS256", "kid": forger.key.kid})


def count_in_400_digits(forger: Forger, right: dict[str, Any]) -> str:
    payload = orjson.dumps(right).replace(str(right["exp"]).encode(), b"9" * 400)
    return sign_bytes(payload, forger.key, {"alg": "RS256", "kid": forger.key.kid})


def nest_token(forger: Forger, right: dict[str, Any]) -> str:
    inner = sign(right, forger.key).encode()
    return sign_bytes(inner, forger.key, {"alg": "RS256", "kid": forger.key.kid, "cty": "JWT"})


def nest_deeply(forger: Forger, right: dict[str, Any]) -> str:
    payload = orjson.dumps(right)[:-1] + b',"x":' + b"[" * 3_000 + b"]" * 3_000 + b"}"
    return sign_bytes(payload, forger.key, {"alg": "RS256", "kid": forger.key.kid})


def sign_as_attacker(forger: Forger, right: dict[str, Any], **header: Any) -> str:
    return sign(right, ATTACKER, **{"kid": forger.key.kid, **header})


FORGERIES = (
    token("without a signature", REJECTED, "token_malformed", lambda _, right: unsigned(right)),
    token("algorithm none with a signature", REJECTED, "algorithm", lambda f, right: sign(right, f.key, alg="none")),
    token("algorithm NonE", REJECTED, "algorithm", lambda f, right: sign(right, f.key, alg="NonE")),
    token("HS256 with the public key", REJECTED, "algorithm", lambda f, right: sign_with_public_key(right, f.key)),
    token("without an algorithm", REJECTED, "algorithm", lambda f, right: sign(right, f.key, alg=ABSENT)),
    token("the key of an attacker", REJECTED, "signature", sign_as_attacker),
    token("an unknown key", REJECTED, "unknown_key", lambda f, right: sign(right, ATTACKER)),
    token("a key id that is a path", REJECTED, "unknown_key", lambda f, right: sign(right, f.key, kid="../../etc/x")),
    token("a key id that is a number", REJECTED, "token_malformed", lambda f, right: sign(right, f.key, kid=7)),
    token("a key in the header", REJECTED, "key_in_header", lambda f, r: sign_as_attacker(f, r, jwk=ATTACKER.public)),
    token("a certificate in the header", REJECTED, "key_in_header", lambda f, r: sign_as_attacker(f, r, x5c=["MII"])),
    token("an unknown critical header", REJECTED, "critical_header", lambda f, r: sign(r, f.key, crit=["x"], x=1)),
    token("the algorithm of another key", REJECTED, "unknown_key", lambda f, right: sign(right, f.key, alg="ES256")),
    token("another algorithm of the key", REJECTED, "unknown_key", lambda f, right: sign(right, f.key, alg="PS256")),
    token("an elliptic key with the id", REJECTED, "unknown_key", lambda f, r: sign(r, ec_key(0), kid=f.key.kid)),
    token("a changed payload", REJECTED, "signature", change_payload),
    token("a removed signature", REJECTED, "token_malformed", strip_signature),
    token("an access token by its type", REJECTED, "token_type", lambda f, right: sign(right, f.key, typ="at+jwt")),
    token("a logout token", REJECTED, "token_type", lambda f, right: sign(right, f.key, typ="logout+jwt")),
    token("a claim twice", REJECTED, "token_malformed", name_twice),
    token("an encrypted token", REJECTED, "token_malformed", lambda f, right: "e30.e30.e30.e30.e30"),
    token("no text", REJECTED, NO_TOKEN, lambda f, right: {"sub": "eve"}),
    token("no token", REJECTED, NO_TOKEN, lambda f, right: ABSENT),
    token("of 20 KiB", REJECTED, NO_TOKEN, lambda f, right: sign(right | {"x": "x" * 20_000}, f.key)),
    token("nested 3,000 times", REJECTED, "token_too_deep", nest_deeply),
    token("that never expires", REJECTED, "token_malformed", infinite_expiry),
    token("that expires in 400 digits", REJECTED, "token_malformed", count_in_400_digits),
    token("that contains a token", REJECTED, "token_malformed", nest_token),
    token("a key id that is a URL", REJECTED, "unknown_key", lambda f, r: sign(r, f.key, kid=f"{f.issuer}/jwks")),
    token("a list of algorithms", REJECTED, "algorithm", lambda f, right: sign(right, f.key, alg=["RS256"])),
)

MISUSES = (
    claims("of another issuer", REJECTED, "wrong_issuer", iss="https://evil.example"),
    claims("of no issuer", REJECTED, "wrong_issuer", iss=ABSENT),
    claims("for another client", REJECTED, "wrong_audience", aud="another-client"),
    claims("for a client whose id starts alike", REJECTED, "wrong_audience", aud="fairlead-staging"),
    claims("for no client", REJECTED, "wrong_audience", aud=ABSENT),
    claims("for an empty list", REJECTED, "wrong_audience", aud=[]),
    claims("for two clients", REJECTED, "wrong_party", aud=["fairlead", "another-client"]),
    claims("for two clients, issued to the other", REJECTED, "wrong_party", aud=["fairlead", "x"], azp="x"),
    claims("issued to another client", REJECTED, "wrong_party", azp="another-client"),
    claims("expired", REJECTED, "expired", exp=int(NOW) - 120, iat=int(NOW) - 600),
    claims("without an expiry", REJECTED, "invalid_time", exp=ABSENT),
    claims("that expires at true", REJECTED, "invalid_time", exp=True),
    claims("that expires at a text", REJECTED, "invalid_time", exp=str(int(NOW) + 600)),
    claims("issued in the future", REJECTED, "issued_in_future", iat=int(NOW) + 3_600, exp=int(NOW) + 7_200),
    claims("valid in the future", REJECTED, "not_yet_valid", nbf=int(NOW) + 3_600),
    claims("without the time of issue", REJECTED, "invalid_time", iat=ABSENT),
    claims("without a nonce", REJECTED, "wrong_nonce", nonce=ABSENT),
    claims("with another nonce", REJECTED, "wrong_nonce", nonce="n" * 43),
    claims("with a list of nonces", REJECTED, "wrong_nonce", nonce=["n"]),
    claims("with an empty nonce", REJECTED, "wrong_nonce", nonce=""),
    claims("with null as its nonce", REJECTED, "wrong_nonce", nonce=None),
    claims("with a number as its nonce", REJECTED, "wrong_nonce", nonce=0),
    claims("that expires before 1970", REJECTED, "invalid_time", exp=-1),
    claims("that expires after the year 9999", REJECTED, "invalid_time", exp=10**15),
    claims("issued before 1970", REJECTED, "invalid_time", iat=-1),
    claims("valid from a text", REJECTED, "invalid_time", nbf="now"),
    claims("for a list in a list", REJECTED, "wrong_audience", aud=[["fairlead"]]),
    claims("for an object", REJECTED, "wrong_audience", aud={"fairlead": True}),
    claims("issued to a list of clients", REJECTED, "wrong_party", azp=["fairlead"]),
    claims("without a subject", REJECTED, "invalid_subject", sub=ABSENT),
    claims("with an empty subject", REJECTED, "invalid_subject", sub=""),
    claims("with a number as its subject", REJECTED, "invalid_subject", sub=1),
    claims("with a line break in its subject", REJECTED, "invalid_subject", sub="eve\nadmin"),
    claims("with a very long subject", REJECTED, "invalid_subject", sub="e" * 2_000),
    claims("of another access token", REJECTED, "wrong_access_token", at_hash=hash_half("another access token")),
    claims("with an access token hash of another type", REJECTED, "wrong_access_token", at_hash=1),
    claims("an access token by a claim", REJECTED, "token_type", typ="Bearer"),
    claims("with the event of a logout", REJECTED, "token_type", events={}),
)
