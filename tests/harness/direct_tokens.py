"""Direct tokens for tests: a valid one, and invalid ones of every sort."""

from typing import Any

import orjson
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE
from fairlead.core.crypto.signing import sign
from fairlead.core.objects import Object
from tests.harness.signing_keys import (
    NOW,
    encode_base64url,
    encode_unsigned,
    jwks,
    private_key,
    sign_token,
    sign_token_with_pss,
    sign_token_with_secret,
    signing_key,
)

ISSUER = "https://fairlead.example.com"

START = int(NOW.timestamp())

KEY, OTHER_KEY = signing_key(0), signing_key(1)

HEADER = {"alg": "RS256", "kid": KEY.id, "typ": "JWT"}

PRIVATE_CLAIMS: Object = {"uid": "uid-of-ada", "name": "ada", "kind": "User", "gen": 3}

CLAIMS: Object = {
    "iss": ISSUER,
    "aud": [AUDIENCE, f"{AUDIENCE}/uid-of-berlin"],
    "sub": "ada",
    "iat": START,
    "nbf": START,
    "exp": START + 3600,
    "jti": "a-token",
    "groups": ["service:user:ada"],
    "service.sh": PRIVATE_CLAIMS,
}

REMOVED = object()


def with_changes(obj: Object, changes: Object) -> Object:
    return {name: value for name, value in {**obj, **changes}.items() if value is not REMOVED}


def token_with_claims(**changes: Any) -> str:
    """A token with changed claims and a valid signature."""
    return sign_token(HEADER, with_changes(CLAIMS, changes), KEY)


def token_with_private_claims(**changes: Any) -> str:
    return token_with_claims(**{"service.sh": with_changes(PRIVATE_CLAIMS, changes)})


def token_with_header(**changes: Any) -> str:
    """A token with a changed header and a valid signature."""
    return sign_token(with_changes(HEADER, changes), CLAIMS, KEY)


VALID_TOKEN = sign(KEY, CLAIMS)

TOKEN_PARTS = VALID_TOKEN.split(".")

PUBLIC_KEY = private_key(KEY).public_key()

PUBLIC_KEY_DER = PUBLIC_KEY.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

MODULUS = jwks(KEY)["keys"][0]["n"]

HS256 = {**HEADER, "alg": "HS256"}

OTHER_JWK = jwks(OTHER_KEY)["keys"][0]


def change_character(part: str) -> str:
    """The same length, with another character in the middle."""
    middle = len(part) // 2
    return part[:middle] + ("A" if part[middle] != "A" else "B") + part[middle + 1 :]


def change_unused_bits(part: str) -> str:
    """Another text that lenient decoders decode to the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) ^ 1]


INVALID_TOKENS: dict[str, str] = {
    # Not tokens.
    "nothing": "",
    "one part": TOKEN_PARTS[0],
    "two parts": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}",
    "four parts": f"{VALID_TOKEN}.{TOKEN_PARTS[2]}",
    "an empty signature": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.",
    "an empty payload": f"{TOKEN_PARTS[0]}..{TOKEN_PARTS[2]}",
    "an empty header": f".{TOKEN_PARTS[1]}.{TOKEN_PARTS[2]}",
    "a space before": f" {VALID_TOKEN}",
    "a line break after": f"{VALID_TOKEN}\n",
    "padding": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{TOKEN_PARTS[2]}==",
    "characters that decoders ignore": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{TOKEN_PARTS[2][:9]}!{TOKEN_PARTS[2][9:]}",
    "the other alphabet of base64": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{TOKEN_PARTS[2][:9]}+/{TOKEN_PARTS[2][11:]}",
    "a fullwidth letter": VALID_TOKEN.replace("e", "\uff45", 1),
    "too large": f"{TOKEN_PARTS[0]}.{'A' * 300_000}.{TOKEN_PARTS[2]}",
    "an access key": "fairlead_5r642GzeHUrk-gwT1Ufa_6taG-O290vTZsrlcSWmhjE",
    "five parts, as if encrypted": f"{VALID_TOKEN}.{TOKEN_PARTS[1]}.{TOKEN_PARTS[2]}",
    "a header that is no JSON": sign_token(b"{", CLAIMS, KEY),
    "a header that is a list": sign_token([HEADER], CLAIMS, KEY),
    "a payload that is no JSON": sign_token(HEADER, b"{", KEY),
    "a payload that is a list": sign_token(HEADER, [CLAIMS], KEY),
    "a payload that is not UTF-8": sign_token(HEADER, b'{"iss": "\xff"}', KEY),
    # Signatures.
    "a changed payload": f"{TOKEN_PARTS[0]}.{change_character(TOKEN_PARTS[1])}.{TOKEN_PARTS[2]}",
    "a changed signature": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{change_character(TOKEN_PARTS[2])}",
    "a shorter signature": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{TOKEN_PARTS[2][:-4]}",
    "the signature of another token": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{token_with_claims(sub='bob').split('.')[2]}",
    "a signature of zeros": f"{TOKEN_PARTS[0]}.{TOKEN_PARTS[1]}.{encode_base64url(bytes(384))}",
    "signed by another published key": sign_token(HEADER, CLAIMS, OTHER_KEY),
    "signed by a key that is not published": sign_token({**HEADER, "kid": "k"}, CLAIMS, signing_key(2)),
    "signed with another hash": sign_token(HEADER, CLAIMS, KEY, SHA384()),
    "signed with another padding": sign_token_with_pss(HEADER, CLAIMS, KEY),
    "hashed with the public key as PEM": sign_token_with_secret(HS256, CLAIMS, KEY.public.encode()),
    "hashed with the public key as PEM, stripped": sign_token_with_secret(HS256, CLAIMS, KEY.public.strip().encode()),
    "hashed with the public key as DER": sign_token_with_secret(HS256, CLAIMS, PUBLIC_KEY_DER),
    "hashed with the modulus": sign_token_with_secret(HS256, CLAIMS, MODULUS.encode()),
    "hashed with nothing": sign_token_with_secret(HS256, CLAIMS, b""),
    "hashed, but declared as signed": sign_token_with_secret(HEADER, CLAIMS, KEY.public.encode()),
    # Headers.
    "none without a signature": f"{encode_unsigned({**HEADER, 'alg': 'none'}, CLAIMS)}.",
    "none with a signature": token_with_header(alg="none"),
    "None": token_with_header(alg="None"),
    "NONE without a signature": f"{encode_unsigned({**HEADER, 'alg': 'NONE'}, CLAIMS)}.",
    "rs256": token_with_header(alg="rs256"),
    "RS384": sign_token({**HEADER, "alg": "RS384"}, CLAIMS, KEY, SHA384()),
    "PS256": sign_token_with_pss({**HEADER, "alg": "PS256"}, CLAIMS, KEY),
    "ES256": token_with_header(alg="ES256"),
    "an algorithm that is a list": token_with_header(alg=["RS256"]),
    "no algorithm": token_with_header(alg=REMOVED),
    "no type": token_with_header(typ=REMOVED),
    "another type": token_with_header(typ="at+jwt"),
    "no key id": token_with_header(kid=REMOVED),
    "an empty key id": token_with_header(kid=""),
    "a key id that is a number": token_with_header(kid=1),
    "a key id in other case": token_with_header(kid=KEY.id.upper()),
    "a key id with a space": token_with_header(kid=f"{KEY.id} "),
    "the beginning of a key id": token_with_header(kid=KEY.id[:-1]),
    "a key id that is a path": token_with_header(kid="../../dev/null"),
    "a critical extension": token_with_header(crit=["exp"], exp=START),
    "an unknown critical extension": token_with_header(crit=["x"], x=1),
    "an empty list of critical extensions": token_with_header(crit=[]),
    "a payload that is not encoded": token_with_header(b64=False, crit=["b64"]),
    "a key of its own": sign_token({**HEADER, "jwk": OTHER_JWK}, CLAIMS, OTHER_KEY),
    "a key of its own, signed by ours": token_with_header(jwk=OTHER_JWK),
    "an address of keys": token_with_header(jku="https://elsewhere.example.com/jwks"),
    "an address of a certificate": token_with_header(x5u="https://elsewhere.example.com/cert"),
    "certificates": token_with_header(x5c=["MIIB"]),
    "compressed": token_with_header(zip="DEF"),
    "a token in a token": token_with_header(cty="JWT"),
    # Issuer and audience.
    "no issuer": token_with_claims(iss=REMOVED),
    "another issuer": token_with_claims(iss="https://elsewhere.example.com"),
    "an issuer with a slash": token_with_claims(iss=f"{ISSUER}/"),
    "the beginning of the issuer": token_with_claims(iss=ISSUER[:-4]),
    "an issuer that begins like ours": token_with_claims(iss=f"{ISSUER}.evil.example"),
    "an issuer in other case": token_with_claims(iss=ISSUER.upper()),
    "an empty issuer": token_with_claims(iss=""),
    "issuers": token_with_claims(iss=[ISSUER]),
    "no audience": token_with_claims(aud=REMOVED),
    "an audience of none": token_with_claims(aud=[]),
    "another audience": token_with_claims(aud=["kubernetes"]),
    "an audience that is a text": token_with_claims(aud=AUDIENCE),
    "an audience that begins like ours": token_with_claims(aud=[f"{AUDIENCE}-x"]),
    "another audience beside ours": token_with_claims(aud=[AUDIENCE, "kubernetes"]),
    "the audience for scoped tokens beside ours": token_with_claims(aud=[AUDIENCE, SCOPED_AUDIENCE]),
    "a cluster in the audience for scoped tokens": token_with_claims(
        aud=[AUDIENCE, f"{SCOPED_AUDIENCE}/uid-of-berlin"]
    ),
    "an audience that is a number": token_with_claims(aud=[1]),
    "a scope in a token without the scoped audience": token_with_private_claims(scope={"projects": []}),
    "an empty scope in a token for the scoped audience": token_with_claims(
        aud=[SCOPED_AUDIENCE], **{"service.sh": with_changes(PRIVATE_CLAIMS, {"scope": {}})}
    ),
    "no scope in a token for the scoped audience": token_with_claims(aud=[SCOPED_AUDIENCE]),
    # Times.
    "expired": token_with_claims(exp=START - 61, iat=START - 99, nbf=START - 99),
    "expired to the second": token_with_claims(exp=START - 60, iat=START - 99, nbf=START - 99),
    "no end": token_with_claims(exp=REMOVED),
    "an end of null": token_with_claims(exp=None),
    "an end that is a text": token_with_claims(exp=str(START + 3600)),
    "an end that is a fraction": token_with_claims(exp=START + 3600.5),
    "an end that is true": token_with_claims(exp=True),
    "an end beyond all numbers": sign_token(HEADER, orjson.dumps(CLAIMS).replace(b'"exp":', b'"exp":1e999,"x":'), KEY),
    "not yet valid": token_with_claims(nbf=START + 61),
    "no beginning": token_with_claims(nbf=REMOVED),
    "a beginning that is a text": token_with_claims(nbf="0"),
    "issued in the future": token_with_claims(iat=START + 61, nbf=START + 61),
    "issued at no time": token_with_claims(iat=REMOVED),
    "issued after it begins": token_with_claims(iat=START + 1),
    "expires before it begins": token_with_claims(nbf=START + 30, exp=START + 30),
    # Identity.
    "no subject": token_with_claims(sub=REMOVED),
    "an empty name": token_with_claims(sub=""),
    "a name that is a number": token_with_claims(sub=1),
    "no id": token_with_claims(jti=REMOVED),
    "an empty id": token_with_claims(jti=""),
    "no groups": token_with_claims(groups=REMOVED),
    "groups that are a text": token_with_claims(groups="system:masters"),
    "groups that are numbers": token_with_claims(groups=[1]),
    "no private claim": token_with_claims(**{"service.sh": REMOVED}),
    "a private claim of null": token_with_claims(**{"service.sh": None}),
    "a private claim that is a text": token_with_claims(**{"service.sh": "ada"}),
    "no uid": token_with_private_claims(uid=REMOVED),
    "an empty uid of a user": token_with_private_claims(uid=""),
    "no object's name": token_with_private_claims(name=REMOVED),
    "no kind": token_with_private_claims(kind=REMOVED),
    "an unknown kind": token_with_private_claims(kind="Robot"),
    "no generation": token_with_private_claims(gen=REMOVED),
    "a generation that is a text": token_with_private_claims(gen="3"),
    "a generation below zero": token_with_private_claims(gen=-1),
    "a scope that is a text": token_with_private_claims(scope="*"),
    "a scope that is a list": token_with_private_claims(scope=[]),
    "a requester that is a list": token_with_private_claims(originalRequester=["root"]),
}
