"""Forged, stolen and misused ID tokens: each is refused, and the audit log says why."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.sso.attacks import CONNECTOR, Attack, attempt, check_refused, claims, each
from tests.sso.deployments import Deployment, running_deployment
from tests.sso.providers.forging import Answer, Forger
from tests.sso.providers.tokens import sign, unsigned
from tests.sso.token_attacks import ATTACKER, FORGERIES, MISUSES, REJECTED, sign_as_attacker
from tests.sso.visits import Visitor


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, running_forging_provider: Forger
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        running_forging_provider.use(deployment.client_of(CONNECTOR))
        deployment.configure(deployment.connector(CONNECTOR, running_forging_provider.issuer))
        yield deployment


@each(*FORGERIES)
def test_a_forged_token_signs_no_one_in(deployment: Deployment, forger: Forger, attack: Attack) -> None:
    check_refused(deployment, attempt(deployment, forger, attack.build), attack.reason, attack.detail)


@each(*MISUSES)
def test_a_token_for_another_purpose_signs_no_one_in(deployment: Deployment, forger: Forger, attack: Attack) -> None:
    check_refused(deployment, attempt(deployment, forger, attack.build), attack.reason, attack.detail)


def test_the_same_provider_signs_in_with_a_right_token(deployment: Deployment, forger: Forger) -> None:
    response = attempt(deployment, forger, lambda forger, authorization: forger.grant(authorization))
    user = deployment.whoami(deployment.key_of(response))
    assert user is not None and user["username"] == deployment.user_of(forger.issuer, "eve")["metadata"]["name"]


def test_times_may_differ_by_a_minute(deployment: Deployment, forger: Forger) -> None:
    now = int(time.time())
    changes: list[dict[str, Any]] = [{"exp": now - 30, "iat": now - 600}, {"iat": now + 30}, {"nbf": now + 30}]
    for times in changes:
        response = attempt(deployment, forger, claims("", "", "", **times).build)
        assert deployment.key_of(response), times


def test_a_token_that_expires_in_the_year_9999_signs_in(deployment: Deployment, forger: Forger) -> None:
    """Without a refresh token, the session would end with it: no time of the key may be beyond what can be written."""
    response = attempt(deployment, forger, claims("", "", "", exp=253_402_300_799).build)
    assert deployment.whoami(deployment.key_of(response)) is not None


def test_a_key_address_in_the_header_is_never_fetched(deployment: Deployment, forger: Forger) -> None:
    forger.answers["/attacker"] = Answer({"keys": [ATTACKER.public | {"kid": forger.key.kid}]})

    def build(forger: Forger, authorization: str) -> str:
        address = f"{forger.issuer}/attacker"
        signed = sign_as_attacker(forger, forger.claims(authorization), jku=address, x5u=address)
        return forger.grant_token(authorization, signed)

    check_refused(deployment, attempt(deployment, forger, build), REJECTED, "signature")
    assert forger.count("/attacker") == 0


def test_the_token_of_another_login_is_refused(deployment: Deployment, forger: Forger) -> None:
    """Replayed: the token is right, but its nonce is that of an earlier login."""
    used: list[str] = []

    def record(forger: Forger, authorization: str) -> str:
        used.append(sign(forger.claims(authorization), forger.key))
        return forger.grant_token(authorization, used[0])

    assert deployment.key_of(attempt(deployment, forger, record))
    response = attempt(deployment, forger, lambda f, authorization: f.grant_token(authorization, used[0]))
    check_refused(deployment, response, REJECTED, "wrong_nonce")


def test_no_token_of_a_provider_authenticates_requests(deployment: Deployment, forger: Forger) -> None:
    """Whatever it claims, and whoever has signed it: only the sign-on accepts ID tokens."""
    with Visitor(deployment.ca_file) as visitor:
        right = forger.claims(deployment.begin(visitor, CONNECTOR))
    admin = right | {"sub": "admin", "preferred_username": "admin", "groups": ["system:masters"]}
    forged = (
        *(sign(each, forger.key) for each in (right, admin)),
        sign_as_attacker(forger, admin),
        sign(admin, forger.key, alg="none"),
        unsigned(admin),
    )
    assert [deployment.whoami(token) for token in forged] == [None] * len(forged)
