"""Attacks on back-channel logout beyond single wrong claims: repetition in parallel, other forms, hostile types."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.harness.server_process import build_tls_context
from tests.sso.attacks import CONNECTOR
from tests.sso.deployments import Deployment
from tests.sso.providers.forging import Forger
from tests.sso.providers.tokens import ABSENT, sign
from tests.sso.test_logouts import logout_claims, logout_token, send, sign_in
from tests.sso.visits import Visitor

PARALLEL = 8


@pytest.fixture(scope="module")
def deployment(deployment_with_two_forgers: Deployment) -> Deployment:
    return deployment_with_two_forgers


def test_after_parallel_uses_of_a_logout_token_it_ends_no_later_session(deployment: Deployment, forger: Forger) -> None:
    """Uses at the same time end the same sessions, so all of them may succeed."""
    before, token = sign_in(deployment, forger), logout_token(forger)
    with ThreadPoolExecutor(PARALLEL) as pool:
        answers = list(pool.map(lambda _: send(deployment, token).status_code, range(PARALLEL)))
    assert 200 in answers and set(answers) <= {200, 400} and deployment.whoami(before) is None
    later = sign_in(deployment, forger)
    assert send(deployment, token).status_code == 400 and deployment.whoami(later) is not None


HOSTILE: dict[str, Callable[[Forger], str]] = {
    "a number as subject": lambda f: logout_token(f, sub=7),
    "a list of subjects": lambda f: logout_token(f, sub=["eve", "ivan"]),
    "an empty subject": lambda f: logout_token(f, sub=""),
    "a list of sessions": lambda f: logout_token(f, sid=["s-1"], sub=ABSENT),
    "an empty session": lambda f: logout_token(f, sid="", sub=ABSENT),
    "an empty id": lambda f: logout_token(f, jti=""),
    "an id that is a number": lambda f: logout_token(f, jti=7),
    "an event that is a string": lambda f: logout_token(f, events="http://schemas.openid.net/event/backchannel-logout"),
    "an event that is null": lambda f: logout_token(f, events=None),
    "no expiry": lambda f: logout_token(f, exp=ABSENT),
    "an expiry that is text": lambda f: logout_token(f, exp=str(int(time.time()) + 60)),
    "several audiences": lambda f: logout_token(f, aud=["another-client", "x"]),
    "a critical extension": lambda f: sign(logout_claims(f), f.key, typ="logout+jwt", crit=["exp"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_logout_token_with_a_strange_claim_ends_nothing(deployment: Deployment, forger: Forger, name: str) -> None:
    key = sign_in(deployment, forger, sid="s-1")
    assert send(deployment, HOSTILE[name](forger)).status_code == 400
    assert deployment.whoami(key) is not None


def test_logouts_in_another_form_end_nothing(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger)
    url = f"{deployment.url}/auth/{CONNECTOR}/backchannel-logout"
    token = logout_token(forger)
    repeated = f"logout_token={token}&logout_token={token}"
    forms: list[dict[str, Any]] = [
        {"json": {"logout_token": token}},
        {"content": f"logout_token={token}", "headers": {"content-type": "text/plain"}},
        {"content": repeated, "headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"params": {"logout_token": token}},
    ]
    with httpx.Client(verify=build_tls_context(str(deployment.ca_file))) as client:
        answers = [client.post(url, **form).status_code for form in forms]
    assert all(answer in (400, 415) for answer in answers), answers
    assert deployment.whoami(key) is not None
    with Visitor(deployment.ca_file) as visitor:
        assert visitor.post(url, {"logout_token": token}).status_code == 200  # none of them has used it up
    assert deployment.whoami(key) is None
