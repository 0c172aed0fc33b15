"""Attacks on the steps between browser, provider and server: each is refused, and the audit log says why."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from tests.console.servers import LOGIN_COOKIE
from tests.harness.server_process import MANAGEMENT
from tests.sso.attacks import CONNECTOR, OTHER, check_refused
from tests.sso.deployments import CANARY, CLIENT_ID, Deployment
from tests.sso.providers.forging import Answer, Forger, read_query
from tests.sso.providers.tokens import sign
from tests.sso.visits import Visitor

LEASES = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/service-system/leases"


@pytest.fixture(scope="module")
def deployment(deployment_with_two_forgers: Deployment) -> Deployment:
    return deployment_with_two_forgers


@pytest.fixture
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


@pytest.fixture
def other_visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


def call_back(deployment: Deployment, visitor: Visitor, id: str = CONNECTOR, **query: str) -> httpx.Response:
    return visitor.get(f"{deployment.url}/auth/{id}/callback?{urlencode(query)}")


# --- the request to the provider


def test_a_request_has_a_challenge_and_fresh_random_values(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    first, second = (read_query(deployment.begin(visitor, CONNECTOR)) for _ in range(2))
    for query in (first, second):
        assert query["code_challenge_method"] == "S256" and len(query["code_challenge"]) == 43
        assert query["response_type"] == "code" and query["client_id"] == CLIENT_ID
        assert query["redirect_uri"] == f"{deployment.url}/auth/{CONNECTOR}/callback"
        assert "openid" in query["scope"].split()
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) >= 43 and first[name] != second[name]


@pytest.mark.parametrize("header", ["Host", "X-Forwarded-Host", "Forwarded", "X-Forwarded-Proto", "Origin", "Referer"])
def test_no_header_changes_the_redirect_address(
    deployment: Deployment, forger: Forger, visitor: Visitor, header: str
) -> None:
    value = "host=evil.example" if header == "Forwarded" else "evil.example"
    response = visitor.get(f"{deployment.url}/auth/{CONNECTOR}/login", **{header: value})
    assert "evil.example" not in response.headers.get("location", "")


def test_unauthenticated_visitors_write_nothing_to_the_store(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    before = deployment.console.send("GET", LEASES)["items"]
    for _ in range(10):
        authorization = deployment.begin(visitor, CONNECTOR)
        call_back(deployment, visitor, state="x" * 43, code="x")
    deployment.finish(visitor, CONNECTOR, authorization, "no such code", iss=forger.issuer)
    names = [lease["metadata"]["name"] for lease in deployment.console.send("GET", LEASES)["items"]]
    assert len([name for name in names if name.startswith("consumed-")]) == len(
        [lease for lease in before if lease["metadata"]["name"].startswith("consumed-")]
    )


@pytest.mark.parametrize("id", ["nothing", "FORGED", "forged%2f..", "..", "forged%00", "%F0%9F%94%91"])
def test_an_unknown_connector_is_refused(deployment: Deployment, visitor: Visitor, id: str) -> None:
    response = visitor.get(f"{deployment.url}/auth/{id}/login")
    assert response.status_code in (400, 401, 403, 404) or "unknown_connector" in response.headers["location"]
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/console\r\nSet-Cookie: x=y",
        "/%2f/evil.example\n",
        "console",
        "/console/../../evil\\",
        "/" * 5_000,
        "https:evil.example",
        "///evil.example",
    ],
)
def test_no_return_path_leads_to_another_site(
    deployment: Deployment, forger: Forger, visitor: Visitor, path: str
) -> None:
    response = deployment.start(visitor, CONNECTOR, path)
    if deployment.reason_of(response) == "invalid_return_path":
        return
    assert response.is_redirect
    authorization = response.headers["location"]
    done = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer)
    location = done.headers["location"]
    assert urlsplit(location).netloc in ("", urlsplit(deployment.url).netloc)
    assert location.startswith(("/console", f"{deployment.url}/console")) and "evil" not in location


def test_the_return_path_is_kept_by_the_server(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    authorization = deployment.begin(visitor, CONNECTOR, "/console/projects?filter=a")
    assert "projects" not in authorization
    code = forger.grant(authorization)
    response = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer, **{"return": "/evil"})
    assert response.headers["location"].endswith("/console/projects?filter=a")


# --- the state


def test_a_second_browser_cannot_finish_a_login(
    deployment: Deployment, forger: Forger, visitor: Visitor, other_visitor: Visitor
) -> None:
    """Login CSRF: the attacker begins, and the victim's browser gets the callback."""
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(
        other_visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer
    )
    check_refused(deployment, response, "state_missing")
    assert forger.count("/token") == 0


def test_a_browser_with_a_login_of_its_own_cannot_finish_that_of_another(
    deployment: Deployment, forger: Forger, visitor: Visitor, other_visitor: Visitor
) -> None:
    deployment.begin(other_visitor, CONNECTOR)
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(
        other_visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer
    )
    check_refused(deployment, response, "state_mismatch")
    assert forger.count("/token") == 0


@pytest.mark.parametrize("state", ["", "x", "x" * 43, "x" * 20_000, "\u0430", "\x00"])
def test_a_wrong_state_is_refused(deployment: Deployment, forger: Forger, visitor: Visitor, state: str) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    code = forger.grant(authorization)
    response = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer, state=state)
    assert LOGIN_COOKIE not in response.cookies and forger.count("/token") == 0
    assert deployment.reason_of(response) in ("state_missing", "state_mismatch", "provider_error")


def test_a_callback_without_anything_is_refused(deployment: Deployment, visitor: Visitor) -> None:
    check_refused(deployment, call_back(deployment, visitor), "state_missing")


def test_a_changed_cookie_is_refused(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    for cookie in visitor.client.cookies.jar:
        assert cookie.value is not None
        middle = len(cookie.value) // 2
        flipped = "A" if cookie.value[middle] != "A" else "B"
        cookie.value = cookie.value[:middle] + flipped + cookie.value[middle + 1 :]
    response = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer)
    assert LOGIN_COOKIE not in response.cookies
    assert deployment.reason_of(response) in ("state_missing", "state_mismatch")


def test_a_callback_works_once(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    cookies = httpx.Cookies(visitor.client.cookies)
    code = forger.grant(authorization)
    assert deployment.key_of(deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer))
    again = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    check_refused(deployment, again, "state_missing")  # its cookie is gone

    visitor.client.cookies = cookies
    forger.answers["/token"] = token_answer(forger, authorization)
    replayed = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    check_refused(deployment, replayed, "state_reused")


def token_answer(forger: Forger, authorization: str) -> Answer:
    """What a provider that accepts every code answers."""
    token = sign(forger.claims(authorization), forger.key)
    return Answer({"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": token})


def test_of_parallel_callbacks_one_succeeds(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    forger.answers["/token"] = token_answer(forger, authorization)
    query = urlencode({"code": "any", "state": read_query(authorization)["state"], "iss": forger.issuer})
    cookie = "; ".join(f"{each.name}={each.value}" for each in visitor.client.cookies.jar)

    def finish(_: int) -> httpx.Response:
        with Visitor(deployment.ca_file) as another:
            return another.get(f"{deployment.url}/auth/{CONNECTOR}/callback?{query}", Cookie=cookie)

    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(finish, range(6)))
    successes = [response for response in responses if LOGIN_COOKIE in response.cookies]
    assert len(successes) == 1
    assert {deployment.reason_of(each) for each in responses if each not in successes} == {"state_reused"}


# --- two providers


def test_a_provider_cannot_pass_off_the_code_of_another(
    deployment: Deployment, forger: Forger, other_forger: Forger, visitor: Visitor
) -> None:
    """Mix-up: the browser began at one provider, and the answer comes from another."""
    other_forger.reset()
    authorization = deployment.begin(visitor, CONNECTOR)
    code = forger.grant(authorization)
    swapped = deployment.finish(visitor, OTHER, authorization, code, iss=other_forger.issuer)
    check_refused(
        deployment, swapped, "state_mismatch" if deployment.reason_of(swapped) != "state_missing" else "state_missing"
    )
    assert other_forger.count("/token") == 0  # the code of the victim does not reach the attacker's provider


@pytest.mark.parametrize("issuer", ["", "https://evil.example", "other", "slash"])
def test_the_issuer_in_the_answer_must_be_that_of_the_connector(
    deployment: Deployment, forger: Forger, other_forger: Forger, visitor: Visitor, issuer: str
) -> None:
    sent = {"other": other_forger.issuer, "slash": f"{forger.issuer}/"}.get(issuer, issuer)
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=sent)
    check_refused(deployment, response, "issuer_mismatch")
    assert forger.count("/token") == 0


def test_a_provider_that_sends_its_issuer_must_always_send_it(
    deployment: Deployment, forger: Forger, visitor: Visitor
) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization))
    check_refused(deployment, response, "issuer_mismatch")


def test_the_token_of_another_provider_is_refused(
    deployment: Deployment, forger: Forger, other_forger: Forger, visitor: Visitor
) -> None:
    other_forger.reset()
    authorization = deployment.begin(visitor, OTHER)
    right = other_forger.claims(authorization, iss=forger.issuer, sub="eve")
    code = other_forger.grant_token(authorization, sign(right, other_forger.key))
    response = deployment.finish(visitor, OTHER, authorization, code, iss=other_forger.issuer)
    check_refused(deployment, response, "token_rejected", "wrong_issuer")


# --- the code


def test_a_stolen_code_is_worth_nothing(
    deployment: Deployment, forger: Forger, visitor: Visitor, other_visitor: Visitor
) -> None:
    """The attacker puts the code of a victim into a login of their own."""
    stolen = forger.grant(deployment.begin(other_visitor, CONNECTOR), sub="victim")
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, stolen, iss=forger.issuer)
    check_refused(deployment, response, "code_rejected")


@pytest.mark.parametrize("code", ["", "c" * 50_000, "\x00"])
def test_a_strange_code_is_refused(deployment: Deployment, forger: Forger, visitor: Visitor, code: str) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    assert LOGIN_COOKIE not in response.cookies
    assert response.status_code >= 400 or deployment.reason_of(response) != ""


@pytest.mark.parametrize("name", ["state", "code", "iss"])
def test_a_parameter_twice_is_refused(deployment: Deployment, forger: Forger, visitor: Visitor, name: str) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    query = [
        ("code", forger.grant(authorization)),
        ("state", read_query(authorization)["state"]),
        ("iss", forger.issuer),
    ]
    response = visitor.get(f"{deployment.url}/auth/{CONNECTOR}/callback?{urlencode([*query, (name, 'x')])}")
    assert LOGIN_COOKIE not in response.cookies


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE"])
def test_only_get_finishes_a_login(deployment: Deployment, forger: Forger, visitor: Visitor, method: str) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    query = {"code": forger.grant(authorization), "state": read_query(authorization)["state"], "iss": forger.issuer}
    url = f"{deployment.url}/auth/{CONNECTOR}/callback?{urlencode(query)}"
    response = visitor.client.request(method, url)
    assert LOGIN_COOKIE not in response.cookies and forger.count("/token") == 0


# --- errors of the provider


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("access_denied", "access_denied"),
        ("server_error", "provider_error"),
        ("<script>alert(1)</script>", "provider_error"),
    ],
)
def test_texts_of_the_provider_are_never_shown(
    deployment: Deployment, forger: Forger, visitor: Visitor, error: str, reason: str
) -> None:
    state = read_query(deployment.begin(visitor, CONNECTOR))["state"]
    text = "<script>alert('canary-text')</script>"
    response = call_back(
        deployment, visitor, error=error, error_description=text, error_uri=text, state=state, iss=forger.issuer
    )
    check_refused(deployment, response, reason)
    shown = response.text + str(response.headers)
    assert "canary-text" not in shown and "<script>alert(1)" not in shown
    assert "canary-text" not in deployment.audit_text()


def test_an_error_without_a_login_is_refused(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    response = call_back(deployment, visitor, error="access_denied", iss=forger.issuer)
    check_refused(deployment, response, "state_missing")


# --- the browser's session


def test_a_planted_session_is_replaced(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    """Session fixation: the attacker has put the cookie of a login of their own into the victim's browser."""
    planted = deployment.console.log_in("admin")
    visitor.client.cookies.set(LOGIN_COOKIE, planted, domain="127.0.0.1", path="/")
    authorization = deployment.begin(visitor, CONNECTOR)
    response = deployment.finish(visitor, CONNECTOR, authorization, forger.grant(authorization), iss=forger.issuer)
    key = deployment.key_of(response)
    assert key != planted
    user = deployment.whoami(key)
    assert user is not None and user["username"] == deployment.user_of(forger.issuer, "eve")["metadata"]["name"]


def test_cookies_and_headers_protect_the_callback(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    begun = deployment.start(visitor, CONNECTOR)
    (pending,) = begun.headers.get_list("set-cookie")
    assert pending.startswith("__Host-")
    for attribute in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert attribute in pending, pending
    assert int(re.findall(r"Max-Age=(\d+)", pending)[0]) <= 600
    authorization = begun.headers["location"]
    groups = [f"group-{number}" for number in range(500)]
    forger.userinfo = {"sub": "eve", "groups": groups}
    code = forger.grant(authorization, groups=groups[:300])
    done = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    for response in (begun, done):
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] == "no-referrer"
    cookies = done.headers.get_list("set-cookie")
    (login,) = [cookie for cookie in cookies if cookie.startswith(f"{LOGIN_COOKIE}=") and "Max-Age=0" not in cookie]
    assert len(login) < 500  # an opaque id, whatever the groups
    assert any(cookie.startswith(pending.partition("=")[0]) and "Max-Age=0" in cookie for cookie in cookies)


def test_codes_states_and_secrets_are_in_no_log(deployment: Deployment, forger: Forger, visitor: Visitor) -> None:
    authorization = deployment.begin(visitor, CONNECTOR)
    query = read_query(authorization)
    code = forger.grant(authorization)
    response = deployment.finish(visitor, CONNECTOR, authorization, code, iss=forger.issuer)
    deployment.event_of(response)
    token = next(request.form for request in forger.requests if request.path == "/token")
    written = deployment.audit_text() + deployment.console.server.log.read_text()
    for secret in (code, query["state"], query["nonce"], token["code_verifier"], deployment.key_of(response), CANARY):
        assert secret not in written
