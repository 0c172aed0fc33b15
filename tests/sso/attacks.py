"""Attacks on the sign-on as data: what the provider answers, and why the server refuses it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.console.servers import LOGIN_COOKIE
from tests.sso.deployments import Deployment
from tests.sso.providers.forging import Forger
from tests.sso.visits import Visitor

CONNECTOR, OTHER = "forged", "other"

Build = Callable[[Forger, str], str]
"""Prepares a code for an authorization request."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`reason` and `detail` are those in the audit log."""

    name: str
    reason: str
    detail: str
    build: Build


def claims(name: str, reason: str, detail: str = "", **changes: Any) -> Attack:
    """An ID token of the provider, well signed, with changed claims."""
    return Attack(name, reason, detail, lambda forger, authorization: forger.grant(authorization, **changes))


def token(name: str, reason: str, detail: str, forge: Callable[[Forger, dict[str, Any]], Any]) -> Attack:
    """A forged ID token with right claims."""

    def build(forger: Forger, authorization: str) -> str:
        return forger.grant_token(authorization, forge(forger, forger.claims(authorization)))

    return Attack(name, reason, detail, build)


def each(*attacks: Attack) -> pytest.MarkDecorator:
    """One test per attack, by its name."""
    assert len({attack.name for attack in attacks}) == len(attacks)
    return pytest.mark.parametrize("attack", attacks, ids=[attack.name.replace(" ", "-") for attack in attacks])


def attempt(deployment: Deployment, forger: Forger, build: Build) -> httpx.Response:
    """A sign-on by a browser that does everything right. The response is that of the callback."""
    with Visitor(deployment.ca_file) as visitor:
        authorization = deployment.begin(visitor, CONNECTOR)
        code = build(forger, authorization)
        return deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)


def check_refused(deployment: Deployment, response: httpx.Response, reason: str, detail: str | None = None) -> None:
    """No login, and the reason is in the audit log."""
    assert LOGIN_COOKIE not in response.cookies
    found = deployment.reason_of(response), deployment.detail_of(response)
    assert found == (reason, found[1] if detail is None else detail)
