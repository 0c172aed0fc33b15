"""Attempts to keep others from signing in: what a stranger can provoke must not count against anyone else."""

from collections.abc import Iterator

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.servers import LOGIN_COOKIE
from tests.sso.attacks import CONNECTOR
from tests.sso.deployments import Deployment, running_deployment
from tests.sso.providers.forging import Forger
from tests.sso.visits import Visitor

MAX_COOKIE_BYTES = 4_096
"""Browsers silently drop a longer cookie."""


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, running_forging_provider: Forger
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        running_forging_provider.use(deployment.client_of(CONNECTOR))
        deployment.configure(deployment.connector(CONNECTOR, running_forging_provider.issuer))
        yield deployment


@pytest.fixture
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


def test_requests_that_another_site_provokes_do_not_block_a_browser(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    """A page of another site embeds pictures with such addresses. They come without cookies."""
    paths = ("callback?state=x&code=x", "callback", "login?return=//evil.example", "frontchannel-logout?iss=x&sid=x")
    for number in range(60):
        visitor.get(f"{deployment.url}/auth/{CONNECTOR}/{paths[number % len(paths)]}")
        visitor.get(f"{deployment.url}/auth/nothing/login")
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer)
    assert LOGIN_COOKIE in response.cookies


def test_wrong_codes_are_delayed_before_they_flood_the_provider(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    reasons = []
    for _ in range(60):
        response = deployment.start(visitor, CONNECTOR)
        if not response.headers["location"].startswith(forger.issuer):
            reasons.append(deployment.reason_of(response))
            break
        authorization = response.headers["location"]
        refused = deployment.finish(visitor, CONNECTOR, authorization, "no such code", iss=forger.issuer)
        reasons.append(deployment.reason_of(refused))
    assert reasons[0] == "code_rejected" and reasons[-1] == "too_many_attempts"
    assert forger.count("/token") < 30


def test_several_tabs_with_long_addresses_fit_into_the_cookie(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    path = f"/console/projects?filter={'x' * 2_000}"
    for _ in range(3):
        response = deployment.start(visitor, CONNECTOR, path)
        (cookie,) = response.headers.get_list("set-cookie")
        assert len(cookie.partition(";")[0]) <= MAX_COOKIE_BYTES
    authorization = response.headers["location"]
    done = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer)
    assert LOGIN_COOKIE in done.cookies and done.headers["location"] == path


def test_several_tabs_sign_in_one_after_the_other(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    tabs = [deployment.begin(visitor, CONNECTOR, f"/console/{name}") for name in ("projects", "clusters")]
    for authorization, name in zip(tabs, ("projects", "clusters"), strict=True):
        code = forger.grant(authorization)
        done = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
        assert LOGIN_COOKIE in done.cookies and done.headers["location"] == f"/console/{name}"
