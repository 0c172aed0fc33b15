"""Another library for signed tokens judges the same tokens: what one accepts and the other rejects needs a reason."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from joserfc import jwk, jwt
from joserfc.errors import JoseError

from fairlead.core.crypto.certificates import Certificates
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.issuer import Issuer
from fairlead.signin.oidc.tokens import Provider, TokenRejected, verify_id_token
from tests.sso.providers.forging import Forger
from tests.sso.providers.tokens import ec_key, rsa_key, sign
from tests.sso.token_attacks import FORGERIES, MISUSES

CLIENT, NONCE, ACCESS_TOKEN = "fairlead", "q" * 43, "the access token"
AUTHORIZATION = f"https://localhost/authorize?client_id={CLIENT}&nonce={NONCE}"
ALGORITHMS = ["RS256", "ES256"]

STRICTER_HERE = {
    # Rules of OpenID Connect, which a library for signatures does not know
    *("an-access-token-by-its-type", "a-logout-token", "an-access-token-by-a-claim", "with-the-event-of-a-logout"),
    *("for-two-clients", "for-two-clients,-issued-to-the-other", "issued-to-another-client"),
    *("of-another-access-token", "with-an-access-token-hash-of-another-type", "without-the-time-of-issue"),
    *("without-a-subject", "with-an-empty-subject", "with-a-very-long-subject"),
    "with-a-line-break-in-its-subject",
    *("issued-to-a-list-of-clients", "that-expires-in-400-digits", "that-expires-after-the-year-9999"),
    "issued-before-1970",
    # Precautions
    *("of-20-KiB", "a-claim-twice"),
}
"""Attacks that only this project rejects."""


def accepts_elsewhere(token: str, forger: Forger) -> bool:
    """Whether joserfc accepts a token, with the checks of claims that it offers."""
    keys = jwk.KeySet.import_key_set({"keys": [dict(key) for key in forger.published]})
    expected: dict[str, Any] = {
        "iss": {"essential": True, "value": forger.issuer},
        "aud": {"essential": True, "value": CLIENT},
        "nonce": {"essential": True, "value": NONCE},
        "exp": {"essential": True},
    }
    try:
        decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
        jwt.JWTClaimsRegistry(now=int(time.time()), leeway=60, **expected).validate(decoded.claims)
    except (JoseError, ValueError, TypeError, RecursionError):
        return False
    return True


async def accepts_here(token: str, forger: Forger, certificates: Certificates) -> bool:
    assert certificates.ca_file is not None
    issuer = Issuer(forger.issuer, ca_pem=certificates.ca_file.read_text(), allow_loopback=True)
    provider = Provider(ProviderClient(), issuer)
    now = datetime.now(UTC)
    try:
        await verify_id_token(provider, token, client_id=CLIENT, nonce=NONCE, now=now, access_token=ACCESS_TOKEN)
    except TokenRejected:
        return False
    return True


def find_token(forger: Forger, attack: Any) -> Any:
    grant = forger.grants[attack.build(forger, AUTHORIZATION)]
    return grant.answer.body.get("id_token") if not callable(grant.answer) else None


@pytest.mark.parametrize("attack", [*FORGERIES, *MISUSES], ids=lambda attack: attack.name.replace(" ", "-"))
async def test_both_reject_an_attack_or_there_is_a_reason(
    forger: Forger, certificates: Certificates, attack: Any
) -> None:
    token = find_token(forger, attack)
    if not isinstance(token, str):
        return  # no library gets to see it
    assert not await accepts_here(token, forger, certificates)
    assert accepts_elsewhere(token, forger) == (attack.name.replace(" ", "-") in STRICTER_HERE)


RIGHT: dict[str, dict[str, Any]] = {
    "as usual": {},
    "a list of one audience": {"aud": [CLIENT]},
    "two audiences, issued to this client": {"aud": [CLIENT, "x"], "azp": CLIENT},
    "fractions of seconds": {"iat": time.time() - 0.5},
    "a subject in another script": {"sub": "\u0430\u0434\u0430"},
    "many claims": {f"claim-{number}": number for number in range(100)},
}


@pytest.mark.parametrize("key", [rsa_key(0), ec_key(0)], ids=["RSA", "elliptic"])
@pytest.mark.parametrize("name", RIGHT)
async def test_both_accept_right_tokens(forger: Forger, certificates: Certificates, name: str, key: Any) -> None:
    forger.published = [rsa_key(0).public, ec_key(0).public]
    token = sign(forger.claims(AUTHORIZATION, **RIGHT[name]), key)
    assert await accepts_here(token, forger, certificates)
    assert accepts_elsewhere(token, forger)
