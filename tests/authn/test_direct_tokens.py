"""Verifying direct tokens: a good one passes, and of every way to make a bad one none does (T-41)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE, Claims, InvalidToken, verify
from fairlead.core.crypto.signing import SigningKey, sign
from fairlead.core.objects import Object
from tests.harness.signing_keys import (
    NOW,
    by_hand,
    by_hand_with_pss,
    by_hand_with_secret,
    jwks,
    private_key,
    signing_key,
    text,
    unsigned,
)

ISSUER = "https://fairlead.example.com"
BEGIN = int(NOW.timestamp())
KEY, STRANGER = signing_key(0), signing_key(1)
HEADER = {"alg": "RS256", "kid": KEY.id, "typ": "JWT"}
PRIVATE: Object = {"uid": "uid-of-ada", "name": "ada", "kind": "User", "gen": 3}
CLAIMS: Object = {
    "iss": ISSUER,
    "aud": [AUDIENCE, f"{AUDIENCE}/uid-of-berlin"],
    "sub": "ada",
    "iat": BEGIN,
    "nbf": BEGIN,
    "exp": BEGIN + 3600,
    "jti": "a-token",
    "groups": ["service:user:ada"],
    "service.sh": PRIVATE,
}
GONE = object()


def changed(obj: Object, changes: Object) -> Object:
    return {name: value for name, value in {**obj, **changes}.items() if value is not GONE}


def claiming(**changes: Any) -> str:
    """Signed by the right key, with other claims."""
    return by_hand(HEADER, changed(CLAIMS, changes), KEY)


def standing_for(**changes: Any) -> str:
    return claiming(**{"service.sh": changed(PRIVATE, changes)})


def headed(**changes: Any) -> str:
    """Signed by the right key, with another header."""
    return by_hand(changed(HEADER, changes), CLAIMS, KEY)


def verified(token: str, keys: Object | None = None, seconds: float = 0, **others: Any) -> Claims:
    told: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "now": NOW + timedelta(seconds=seconds), **others}
    return verify(token, jwks(KEY, STRANGER) if keys is None else keys, **told)


GOOD = sign(KEY, CLAIMS)
PARTS = GOOD.split(".")
PUBLIC = private_key(KEY).public_key()
PUBLIC_DER = PUBLIC.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
MODULUS = jwks(KEY)["keys"][0]["n"]
HS256 = {**HEADER, "alg": "HS256"}
OWN_JWK = jwks(STRANGER)["keys"][0]


def flipped(part: str) -> str:
    """The same length, another character in the middle."""
    middle = len(part) // 2
    return part[:middle] + ("A" if part[middle] != "A" else "B") + part[middle + 1 :]


def loosely_ended(part: str) -> str:
    """Another text that lenient decoders take for the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) ^ 1]


BAD: dict[str, str] = {
    # No tokens at all.
    "nothing": "",
    "one part": PARTS[0],
    "two parts": f"{PARTS[0]}.{PARTS[1]}",
    "four parts": f"{GOOD}.{PARTS[2]}",
    "an empty signature": f"{PARTS[0]}.{PARTS[1]}.",
    "an empty payload": f"{PARTS[0]}..{PARTS[2]}",
    "an empty header": f".{PARTS[1]}.{PARTS[2]}",
    "a space before": f" {GOOD}",
    "a line break after": f"{GOOD}\n",
    "padding": f"{PARTS[0]}.{PARTS[1]}.{PARTS[2]}==",
    "characters that decoders overlook": f"{PARTS[0]}.{PARTS[1]}.{PARTS[2][:9]}!{PARTS[2][9:]}",
    "the other alphabet of base64": f"{PARTS[0]}.{PARTS[1]}.{PARTS[2][:9]}+/{PARTS[2][11:]}",
    "a fullwidth letter": GOOD.replace("e", "\uff45", 1),
    "too large": f"{PARTS[0]}.{'A' * 300_000}.{PARTS[2]}",
    "an access key": "fairlead_5r642GzeHUrk-gwT1Ufa_6taG-O290vTZsrlcSWmhjE",
    "five parts, as if encrypted": f"{GOOD}.{PARTS[1]}.{PARTS[2]}",
    "a header that is no JSON": by_hand(b"{", CLAIMS, KEY),
    "a header that is a list": by_hand([HEADER], CLAIMS, KEY),
    "a payload that is no JSON": by_hand(HEADER, b"{", KEY),
    "a payload that is a list": by_hand(HEADER, [CLAIMS], KEY),
    "a payload that is not UTF-8": by_hand(HEADER, b'{"iss": "\xff"}', KEY),
    # Signatures.
    "a changed payload": f"{PARTS[0]}.{flipped(PARTS[1])}.{PARTS[2]}",
    "a changed signature": f"{PARTS[0]}.{PARTS[1]}.{flipped(PARTS[2])}",
    "a shorter signature": f"{PARTS[0]}.{PARTS[1]}.{PARTS[2][:-4]}",
    "the signature of another token": f"{PARTS[0]}.{PARTS[1]}.{claiming(sub='bob').split('.')[2]}",
    "a signature of zeros": f"{PARTS[0]}.{PARTS[1]}.{text(bytes(384))}",
    "signed by another published key": by_hand(HEADER, CLAIMS, STRANGER),
    "signed by a key that is not published": by_hand({**HEADER, "kid": "k"}, CLAIMS, signing_key(2)),
    "signed with another hash": by_hand(HEADER, CLAIMS, KEY, SHA384()),
    "signed with another padding": by_hand_with_pss(HEADER, CLAIMS, KEY),
    "hashed with the public key as PEM": by_hand_with_secret(HS256, CLAIMS, KEY.public.encode()),
    "hashed with the public key as PEM, stripped": by_hand_with_secret(HS256, CLAIMS, KEY.public.strip().encode()),
    "hashed with the public key as DER": by_hand_with_secret(HS256, CLAIMS, PUBLIC_DER),
    "hashed with the modulus": by_hand_with_secret(HS256, CLAIMS, MODULUS.encode()),
    "hashed with nothing": by_hand_with_secret(HS256, CLAIMS, b""),
    "hashed, but said to be signed": by_hand_with_secret(HEADER, CLAIMS, KEY.public.encode()),
    # Headers.
    "none without a signature": f"{unsigned({**HEADER, 'alg': 'none'}, CLAIMS)}.",
    "none with a signature": headed(alg="none"),
    "None": headed(alg="None"),
    "NONE without a signature": f"{unsigned({**HEADER, 'alg': 'NONE'}, CLAIMS)}.",
    "rs256": headed(alg="rs256"),
    "RS384": by_hand({**HEADER, "alg": "RS384"}, CLAIMS, KEY, SHA384()),
    "PS256": by_hand_with_pss({**HEADER, "alg": "PS256"}, CLAIMS, KEY),
    "ES256": headed(alg="ES256"),
    "an algorithm that is a list": headed(alg=["RS256"]),
    "no algorithm": headed(alg=GONE),
    "no type": headed(typ=GONE),
    "another type": headed(typ="at+jwt"),
    "no key id": headed(kid=GONE),
    "an empty key id": headed(kid=""),
    "a key id that is a number": headed(kid=1),
    "a key id in other case": headed(kid=KEY.id.upper()),
    "a key id with a space": headed(kid=f"{KEY.id} "),
    "the beginning of a key id": headed(kid=KEY.id[:-1]),
    "a key id that is a path": headed(kid="../../dev/null"),
    "a critical extension": headed(crit=["exp"], exp=BEGIN),
    "an unknown critical extension": headed(crit=["x"], x=1),
    "an empty list of critical extensions": headed(crit=[]),
    "a payload that is not encoded": headed(b64=False, crit=["b64"]),
    "a key of its own": by_hand({**HEADER, "jwk": OWN_JWK}, CLAIMS, STRANGER),
    "a key of its own, signed by ours": headed(jwk=OWN_JWK),
    "an address of keys": headed(jku="https://elsewhere.example.com/jwks"),
    "an address of a certificate": headed(x5u="https://elsewhere.example.com/cert"),
    "certificates": headed(x5c=["MIIB"]),
    "packed": headed(zip="DEF"),
    "a token in a token": headed(cty="JWT"),
    # Issuer and audience.
    "no issuer": claiming(iss=GONE),
    "another issuer": claiming(iss="https://elsewhere.example.com"),
    "an issuer with a slash": claiming(iss=f"{ISSUER}/"),
    "the beginning of the issuer": claiming(iss=ISSUER[:-4]),
    "an issuer that begins like ours": claiming(iss=f"{ISSUER}.evil.example"),
    "an issuer in other case": claiming(iss=ISSUER.upper()),
    "an empty issuer": claiming(iss=""),
    "issuers": claiming(iss=[ISSUER]),
    "no audience": claiming(aud=GONE),
    "an audience of none": claiming(aud=[]),
    "another audience": claiming(aud=["kubernetes"]),
    "an audience that is a text": claiming(aud=AUDIENCE),
    "an audience that begins like ours": claiming(aud=[f"{AUDIENCE}-x"]),
    "another audience beside ours": claiming(aud=[AUDIENCE, "kubernetes"]),
    "an audience of those who know scopes beside ours": claiming(aud=[AUDIENCE, SCOPED_AUDIENCE]),
    "a cluster for those who know scopes": claiming(aud=[AUDIENCE, f"{SCOPED_AUDIENCE}/uid-of-berlin"]),
    "an audience that is a number": claiming(aud=[1]),
    "a scope for those who know none": standing_for(scope={"projects": []}),
    "a scope for another audience than it says": claiming(
        aud=[SCOPED_AUDIENCE], **{"service.sh": changed(PRIVATE, {"scope": {}})}
    ),
    "no scope, for those who know scopes": claiming(aud=[SCOPED_AUDIENCE]),
    # Times.
    "expired": claiming(exp=BEGIN - 61, iat=BEGIN - 99, nbf=BEGIN - 99),
    "expired to the second": claiming(exp=BEGIN - 60, iat=BEGIN - 99, nbf=BEGIN - 99),
    "no end": claiming(exp=GONE),
    "an end of null": claiming(exp=None),
    "an end that is a text": claiming(exp=str(BEGIN + 3600)),
    "an end that is a fraction": claiming(exp=BEGIN + 3600.5),
    "an end that is true": claiming(exp=True),
    "an end beyond all numbers": by_hand(HEADER, orjson.dumps(CLAIMS).replace(b'"exp":', b'"exp":1e999,"x":'), KEY),
    "not yet valid": claiming(nbf=BEGIN + 61),
    "no beginning": claiming(nbf=GONE),
    "a beginning that is a text": claiming(nbf="0"),
    "issued in the future": claiming(iat=BEGIN + 61, nbf=BEGIN + 61),
    "issued at no time": claiming(iat=GONE),
    "issued after it begins": claiming(iat=BEGIN + 1),
    "over before it begins": claiming(nbf=BEGIN + 30, exp=BEGIN + 30),
    # Whom it stands for.
    "nobody": claiming(sub=GONE),
    "an empty name": claiming(sub=""),
    "a name that is a number": claiming(sub=1),
    "no id": claiming(jti=GONE),
    "an empty id": claiming(jti=""),
    "no groups": claiming(groups=GONE),
    "groups that are a text": claiming(groups="system:masters"),
    "groups that are numbers": claiming(groups=[1]),
    "no private claim": claiming(**{"service.sh": GONE}),
    "a private claim of null": claiming(**{"service.sh": None}),
    "a private claim that is a text": claiming(**{"service.sh": "ada"}),
    "no uid": standing_for(uid=GONE),
    "an empty uid of a user": standing_for(uid=""),
    "no object's name": standing_for(name=GONE),
    "no kind": standing_for(kind=GONE),
    "a kind that there is not": standing_for(kind="Robot"),
    "no generation": standing_for(gen=GONE),
    "a generation that is a text": standing_for(gen="3"),
    "a generation below zero": standing_for(gen=-1),
    "a scope that is a text": standing_for(scope="*"),
    "a scope that is a list": standing_for(scope=[]),
    "a requester that is a list": standing_for(originalRequester=["root"]),
}


def test_t41_what_a_good_token_says() -> None:
    assert verified(GOOD) == Claims(
        id="a-token",
        user="ada",
        groups=("service:user:ada",),
        uid="uid-of-ada",
        name="ada",
        kind="User",
        generation=3,
        scope=None,
        clusters={},
        original_requester="",
        issued_at=BEGIN,
        expires_at=BEGIN + 3600,
    )


def test_t41_tokens_made_by_hand_pass_when_nothing_is_wrong_with_them() -> None:
    """Otherwise the table below would show nothing."""
    assert verified(claiming()) == verified(standing_for()) == verified(headed()) == verified(GOOD)


@pytest.mark.parametrize("what", BAD)
def test_t41_a_bad_token_is_refused(what: str) -> None:
    with pytest.raises(InvalidToken):
        verified(BAD[what])


def test_t41_there_are_many_bad_tokens_and_no_two_alike() -> None:
    assert len(set(BAD.values())) == len(BAD) >= 50


def test_t41_a_signature_has_one_spelling() -> None:
    """The last character of a text that is no whole number of bytes has bits that decoders drop."""
    header, payload, signature = GOOD.split(".")
    assert len(signature) % 4 == 0, "a signature of 384 bytes leaves nothing over; the other parts may"
    for part in (header, payload):
        if len(part) % 4:
            with pytest.raises(InvalidToken, match="three parts"):
                verified(GOOD.replace(part, loosely_ended(part)))
    with pytest.raises(InvalidToken, match="three parts"):
        verified(f"{header}.{payload}.{loosely_ended('AA')}")


def test_a_scoped_token_is_for_those_who_enforce_scopes() -> None:
    scope = {"clusters": [{"cluster": "berlin"}]}
    private = {**PRIVATE, "scope": scope, "clusters": {"berlin": "uid-of-berlin"}, "originalRequester": "root"}
    token = claiming(aud=[SCOPED_AUDIENCE], **{"service.sh": private})
    claims = verified(token, audience=(AUDIENCE, SCOPED_AUDIENCE))
    assert (claims.scope, claims.clusters, claims.original_requester) == (scope, {"berlin": "uid-of-berlin"}, "root")
    with pytest.raises(InvalidToken, match="another audience"):
        verified(token)


def test_clocks_may_differ_by_a_minute_and_no_more() -> None:
    assert verified(GOOD, seconds=-60).user == verified(GOOD, seconds=3659).user == "ada"
    for seconds in (-61, 3660):
        with pytest.raises(InvalidToken):
            verified(GOOD, seconds=seconds, skew=86_400)
    with pytest.raises(InvalidToken, match="has expired"):
        verified(GOOD, seconds=3600, skew=0)


def _with(**changes: Any) -> Object:
    (listed,) = jwks(KEY)["keys"]
    return {"keys": [changed(listed, changes)]}


def _short() -> Object:
    numbers = generate_private_key(65537, 1024).public_key().public_numbers()
    return _with(n=text(numbers.n.to_bytes(128, "big")))


@pytest.mark.parametrize(
    "keys",
    [
        lambda: {},
        lambda: {"keys": None},
        lambda: {"keys": []},
        lambda: {"keys": ["x"]},
        lambda: {"keys": jwks(KEY, KEY)["keys"]},
        lambda: _with(kty="oct", k=text(b"secret")),
        lambda: _with(alg="HS256"),
        lambda: _with(alg=GONE),
        lambda: _with(use="enc"),
        lambda: _with(n=GONE),
        lambda: _with(n="!"),
        lambda: _with(n="AQAB"),
        _short,
    ],
)
def test_t41_a_token_is_refused_where_its_key_is_not_published_just_once_and_for_this(
    keys: Callable[[], Object],
) -> None:
    with pytest.raises(InvalidToken):
        verified(GOOD, keys())


def test_an_issuer_must_be_expected() -> None:
    with pytest.raises(InvalidToken, match="another issuer"):
        verified(claiming(iss=""), issuer="")


@pytest.mark.parametrize("what", ["expired", "another issuer", "a changed signature", "a key id with a space"])
def test_a_refusal_quotes_nothing_of_the_token(what: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        verified(BAD[what])
    told = str(refused.value)
    assert "ada" not in told and KEY.id not in told and PARTS[0] not in told


def test_both_keys_verify_while_one_is_being_replaced() -> None:
    def signed(key: SigningKey) -> str:
        return sign(key, CLAIMS)

    assert verified(signed(KEY)) == verified(signed(STRANGER))
