"""Sessions follow the provider: refreshes notice who has left, who has another group, and what is not as it was."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.servers import GROUP
from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.sso.attacks import CONNECTOR, attempt
from tests.sso.deployments import Deployment, running_deployment
from tests.sso.providers.forging import Answer, Forger, Reply, Request
from tests.sso.providers.tokens import ABSENT, sign

INTERVAL = 5
WAIT = 40
"""Refreshes of a session are this many seconds apart, and noticed within so many on a busy machine."""
RULES = [
    {"id": "ops", "connector": CONNECTOR, "value": "operators", "groups": ["ops"]},
    {"id": "devs", "connector": CONNECTOR, "value": "developers", "groups": ["devs"]},
]


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, running_forging_provider: Forger
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        running_forging_provider.use(deployment.client_of(CONNECTOR))
        connector = deployment.connector(
            CONNECTOR, running_forging_provider.issuer, refreshIntervalSeconds=INTERVAL, maxStaleSeconds=3_600
        )
        deployment.configure(connector, rules=RULES)
        yield deployment


def sign_in(deployment: Deployment, forger: Forger, sub: str, refresh: Reply, **changes: Any) -> str:
    """The access key of a session that has a refresh token."""

    def build(forger: Forger, authorization: str) -> str:
        right = forger.claims(authorization, sub=sub, preferred_username=sub, **changes)
        return forger.grant_token(authorization, sign(right, forger.key), refresh_token=forger.allow_refresh(refresh))

    return deployment.key_of(attempt(deployment, forger, build))


def refreshed(forger: Forger, sub: str, **changes: Any) -> Answer:
    """The answer to a refresh, with a new ID token."""
    right = forger.claims("", sub=sub, preferred_username=sub, **changes)
    return Answer({"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": sign(right, forger.key)})


def wait_for_end(deployment: Deployment, key: str) -> None:
    wait_until(lambda: deployment.whoami(key) is None, WAIT, "the key is rejected")


def groups_of(deployment: Deployment, key: str) -> list[str]:
    user = deployment.whoami(key)
    return [] if user is None else list(user["groups"])


def test_all_sessions_follow_the_provider(deployment: Deployment, forger: Forger) -> None:
    """One wait for all of them: each session is of another user, whose refresh has another answer."""
    endings: dict[str, Reply] = {
        "revoked": Answer({"error": "invalid_grant"}, 400),
        "swapped": lambda _: refreshed(forger, "another"),
        "issuer": lambda _: refreshed(forger, "issuer", iss="https://evil.example"),
        "audience": lambda _: refreshed(forger, "audience", aud="another-client"),
        "unsigned": lambda _: Answer({"access_token": "a", "token_type": "Bearer", "id_token": "e30.e30."}),
        "left": lambda _: refreshed(forger, "left", groups=["visitors"]),
    }
    ended = {sub: sign_in(deployment, forger, sub, reply) for sub, reply in endings.items()}
    moved = sign_in(deployment, forger, "moved", lambda _: refreshed(forger, "moved", groups=["operators"]))
    broken = sign_in(deployment, forger, "broken", Answer({}, 500))
    assert "devs" in groups_of(deployment, moved)
    for sub, key in ended.items():
        assert deployment.whoami(key) is not None, sub

    for key in ended.values():
        wait_for_end(deployment, key)
    wait_until(lambda: "ops" in groups_of(deployment, moved), WAIT, "the new group is there")
    assert "devs" not in groups_of(deployment, moved)
    assert "devs" in groups_of(deployment, broken)  # an error of the provider ends nothing at once


def test_a_session_that_cannot_be_checked_delays_no_other(deployment: Deployment, forger: Forger) -> None:
    """The provider's answers about one user are too large or errors: that user must not stop the checks of others."""
    answers = (Answer({}, 500), Answer({"error": "server_error"}, 400), Answer(b"x" * 3_000_000), Answer(b"<html>"))
    for number, answer in enumerate(answers):
        sign_in(deployment, forger, f"unreadable-{number}", answer)
    time.sleep(INTERVAL)
    key = sign_in(deployment, forger, "gone", Answer({"error": "invalid_grant"}, 400))
    began = time.monotonic()
    wait_for_end(deployment, key)
    assert time.monotonic() - began < 2 * INTERVAL + BUSY_SECONDS


@pytest.mark.long
def test_a_rotated_refresh_token_is_used_next(deployment: Deployment, forger: Forger) -> None:
    tokens: list[str] = []

    def rotate(request: Request) -> Answer:
        tokens.append(request.form["refresh_token"])
        answer = refreshed(forger, "rotating")
        return Answer({**answer.body, "refresh_token": forger.allow_refresh(rotate)})

    key = sign_in(deployment, forger, "rotating", rotate)
    wait_until(lambda: len(tokens) >= 2, WAIT, "two refreshes")
    assert len(set(tokens)) == len(tokens)
    assert deployment.whoami(key) is not None


def test_a_session_without_a_refresh_token_ends_with_the_id_token(deployment: Deployment, forger: Forger) -> None:
    end = int(time.time()) + 6
    response = attempt(deployment, forger, lambda f, a: f.grant(a, sub="short", preferred_username="short", exp=end))
    key = deployment.key_of(response)
    assert deployment.whoami(key) is not None
    wait_until(lambda: deployment.whoami(key) is None, WAIT, "the key is rejected")
    assert time.time() >= end - 2


def test_a_narrower_list_of_groups_ends_sessions_at_once(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger, "narrowed", lambda _: refreshed(forger, "narrowed"))
    right = deployment.connector(CONNECTOR, forger.issuer, refreshIntervalSeconds=INTERVAL)
    try:
        narrowed = deployment.connector(
            CONNECTOR, forger.issuer, refreshIntervalSeconds=INTERVAL, allowedGroups=["operators"]
        )
        deployment.configure(narrowed, rules=RULES)
        assert deployment.whoami(key) is None
    finally:
        deployment.configure(right, rules=RULES)


def test_a_removed_rule_takes_its_groups_at_once(deployment: Deployment, forger: Forger) -> None:
    key = sign_in(deployment, forger, "ruled", lambda _: refreshed(forger, "ruled"), groups=["developers", "operators"])
    assert {"devs", "ops"} <= set(groups_of(deployment, key))
    right = deployment.connector(CONNECTOR, forger.issuer, refreshIntervalSeconds=INTERVAL)
    try:
        deployment.configure(right, rules=RULES[1:])
        assert "ops" not in groups_of(deployment, key)
    finally:
        deployment.configure(right, rules=RULES)


def test_no_answer_of_the_api_contains_a_refresh_token(deployment: Deployment, forger: Forger) -> None:
    sign_in(deployment, forger, "sealed", lambda _: refreshed(forger, "sealed"))
    (token,) = forger.refreshes
    shown = str(deployment.console.send("GET", f"{GROUP}/ownedaccesskeys")) + str(deployment.users())
    written = deployment.audit_text() + deployment.console.server.log.read_text()
    stored = b"".join(file.read_bytes() for file in deployment.audit_folder.rglob("*") if file.is_file())
    assert token not in shown and token not in written and token.encode() not in stored


def test_a_session_of_a_user_without_groups_is_refused_by_the_rules(deployment: Deployment, forger: Forger) -> None:
    response = attempt(deployment, forger, lambda f, a: f.grant(a, sub="none", groups=ABSENT))
    assert deployment.reason_of(response) == "no_rule_matched"
