"""Documents of a hostile provider: bombs, endpoints inside the server's network, a weaker PKCE, floods of logouts."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.console.servers import GROUP, LOGIN_COOKIE
from tests.harness.bombs import repeat_compressed
from tests.harness.eventually import BUSY_SECONDS
from tests.sso.attacks import CONNECTOR, attempt
from tests.sso.deployments import Deployment
from tests.sso.providers.forging import Answer, Forger, read_query
from tests.sso.providers.tokens import ABSENT, rsa_key, sign
from tests.sso.test_logouts import logout_claims, send, sign_in
from tests.sso.visits import Visitor

DISCOVERY = "/.well-known/openid-configuration"
BOMB = Answer(repeat_compressed(b" " * (1 << 20), 256), headers={"content-encoding": "gzip"})
MEMORY_BYTES = 60 << 20
FORGED_LOGOUTS = 400


@pytest.fixture
def deployment(running: Deployment, forger: Forger) -> Deployment:
    """With a provider of which it knows nothing yet."""
    forger.become_another()
    running.configure(running.connector(CONNECTOR, forger.issuer))
    return running


@pytest.mark.parametrize("path", [DISCOVERY, "/jwks", "/token", "/userinfo"])
def test_a_compressed_bomb_costs_no_memory(deployment: Deployment, forger: Forger, path: str) -> None:
    before = deployment.console.server.resident_bytes()
    forger.answers[path] = BOMB
    if path == DISCOVERY:
        with Visitor(deployment.ca_file) as visitor:
            response = deployment.start(visitor, CONNECTOR)
    else:
        response = attempt(deployment, forger, lambda f, authorization: f.grant(authorization, groups=ABSENT))
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "response_invalid"
    assert deployment.console.server.resident_bytes() - before < MEMORY_BYTES


@pytest.mark.parametrize("path", [DISCOVERY, "/jwks", "/token"])
def test_a_megabyte_of_headers_is_refused(deployment: Deployment, forger: Forger, path: str) -> None:
    forger.answers[path] = Answer({}, headers={f"x-{number}": "y" * 8_000 for number in range(125)})
    if path == DISCOVERY:
        with Visitor(deployment.ca_file) as visitor:
            response = deployment.start(visitor, CONNECTOR)
    else:
        response = attempt(deployment, forger, lambda f, authorization: f.grant(authorization))
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "provider_unreachable"


@pytest.mark.parametrize("endpoint", ["token_endpoint", "userinfo_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "100.100.100.200"]
)
def test_no_endpoint_leads_to_a_metadata_service(
    deployment: Deployment, forger: Forger, endpoint: str, host: str
) -> None:
    forger.answers[DISCOVERY] = Answer(forger.metadata() | {endpoint: f"https://{host}/x"})
    response = attempt(deployment, forger, lambda f, authorization: f.grant(authorization, groups=ABSENT))
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "address_blocked"


def test_a_redirect_of_userinfo_gets_no_token(deployment: Deployment, forger: Forger) -> None:
    forger.answers["/userinfo"] = Answer(status=302, headers={"location": f"{forger.issuer}/stolen"})
    response = attempt(deployment, forger, lambda f, authorization: f.grant(authorization, groups=ABSENT))
    assert LOGIN_COOKIE not in response.cookies and deployment.detail_of(response) == "provider_redirect"
    assert forger.count("/stolen") == 0


@pytest.mark.parametrize("methods", [["plain"], [], None, "plain", {"S256": False}])
def test_no_document_weakens_the_challenge(deployment: Deployment, forger: Forger, methods: object) -> None:
    forger.answers[DISCOVERY] = Answer(forger.metadata() | {"code_challenge_methods_supported": methods})
    with Visitor(deployment.ca_file) as visitor:
        query = read_query(deployment.begin(visitor, CONNECTOR))
    assert query["code_challenge_method"] == "S256" and len(query["code_challenge"]) == 43


@pytest.mark.parametrize("parameter", ["state=x", "nonce=x", "redirect_uri=https://evil.example", "code_challenge=x"])
def test_an_endpoint_cannot_preset_a_parameter_of_the_request(
    deployment: Deployment, forger: Forger, parameter: str
) -> None:
    endpoint = f"{forger.issuer}/authorize?{parameter}&kept=1"
    forger.answers[DISCOVERY] = Answer(forger.metadata() | {"authorization_endpoint": endpoint})
    with Visitor(deployment.ca_file) as visitor:
        address = deployment.begin(visitor, CONNECTOR)
    name = parameter.partition("=")[0]
    assert address.count(f"{name}=") == 1 and read_query(address)[name] not in ("x", "https://evil.example")
    assert read_query(address)["kept"] == "1"


def test_a_flood_of_forged_logouts_ends_nothing_and_delays_others_little(
    deployment: Deployment, forger: Forger
) -> None:
    key = sign_in(deployment, forger)
    forged = [sign(logout_claims(forger), rsa_key(9), typ="logout+jwt", kid=f"k-{n}") for n in range(FORGED_LOGOUTS)]
    with ThreadPoolExecutor(8) as pool, deployment.console.server.client() as client:
        answers = [pool.submit(lambda token: send(deployment, token).status_code, each) for each in forged]
        slowest = 0.0
        while not all(each.done() for each in answers):
            began = time.monotonic()
            assert client.get(f"{GROUP}/projects").is_success
            slowest = max(slowest, time.monotonic() - began)
    assert {each.result() for each in answers} == {400}
    assert slowest < 1 + BUSY_SECONDS
    assert deployment.whoami(key) is not None
    assert forger.count("/jwks") < 15, "the provider is asked for its keys rarely"
