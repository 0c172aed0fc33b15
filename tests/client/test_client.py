"""The client: what it sends, what it makes of answers, and that the key stays in its header."""

import socket
import threading
from pathlib import Path

import pytest

from fairlead.client import ApiStatusError, Cause, CertificateError, Client, ClientError, Unreachable
from fairlead.client.client import normalize_url
from fairlead.core.crypto.certificates import ensure_certificates
from tests.harness.fake_server import KEY, FakeServer, M, failure, items, named


def test_a_list_follows_its_pages_to_the_end(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users", items(named("a"), token="more"), items(named("b")))
    assert [each["metadata"]["name"] for each in client.list("users", labels="x=y")] == ["a", "b"]
    first, second = fake.requests
    assert first.query == {"limit": "500", "labelSelector": "x=y"}
    assert second.query == {"limit": "500", "labelSelector": "x=y", "continue": "more"}


def test_each_verb_goes_where_the_api_has_it(fake: FakeServer, client: Client) -> None:
    for method, path in (
        ("GET", f"{M}/users/alice"),
        ("POST", f"{M}/namespaces/p/apps"),
        ("PATCH", f"{M}/users/alice"),
        ("POST", f"{M}/users/alice/profile"),
        ("DELETE", f"{M}/users/alice"),
    ):
        fake.on(method, path, (200, named("seen")))
    client.get("users", "alice")
    client.create("apps", {"spec": {}}, namespace="p")
    client.patch("users", "alice", {"spec": {"disabled": True}})
    client.invoke_action("users", "alice", "profile", {"email": "a@example.com"})
    assert client.delete("users", "alice") == named("seen")
    patched = fake.asked("PATCH", f"{M}/users/alice")[0]
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.body == {"spec": {"disabled": True}}


def test_another_api_group_is_another_path(fake: FakeServer) -> None:
    fake.on("GET", "/kubernetes/management/apis/manage.example.com/v1/users/a", (200, named("a")))
    with Client(fake.url, KEY, ca_file=fake.ca_file, group="manage.example.com") as client:
        assert client.get("users", "a") == named("a")


def test_an_object_is_sent_with_the_version_of_its_group(fake: FakeServer, client: Client) -> None:
    fake.on("POST", f"{M}/users", lambda request: (201, request.body))
    assert client.create("users", {"kind": "User"}) == {"kind": "User", "apiVersion": "management.service.sh/v1"}
    assert client.create("users", {"kind": "User", "apiVersion": "x/v1"})["apiVersion"] == "x/v1"
    assert client.create("users", {"spec": {}}) == {"spec": {}}


def test_an_object_with_a_field_that_the_server_does_not_know_is_to_be_refused(
    fake: FakeServer, client: Client
) -> None:
    fake.on("POST", f"{M}/users", (201, named("a")))
    client.create("users", {"kind": "User"})
    client.create("users", {"spec": {}})
    assert [each.query for each in fake.asked("POST", f"{M}/users")] == [{"fieldValidation": "Strict"}, {}]


def test_warnings_are_handed_to_whoever_wants_them(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users/a", (200, named("a")))
    fake.warnings += [r'299 - "unknown field \"spec.x\""', '299 fairlead "old, very old", 299 - "older"', "nonsense"]
    client.get("users", "a")
    heard: list[str] = []
    client.on_warning = heard.append
    client.get("users", "a")
    assert heard == ['unknown field "spec.x"', "old, very old", "older"]


def test_the_key_is_in_the_header_and_nowhere_else(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users", items(named("a"), token="more"), items())
    list(client.list("users"))
    for request in fake.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in request.path + str(request.query)
        assert [name for name, value in request.headers.items() if KEY in value] == ["authorization"]
    assert KEY not in repr(vars(client)) + repr(vars(client._http))


def test_a_redirect_is_not_followed_because_the_key_would_go_along(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users/a", (302, {}))
    with pytest.raises(ApiStatusError, match="responded with status 302"):
        client.get("users", "a")
    assert len(fake.requests) == 1


def test_names_cannot_leave_their_place_in_the_path(fake: FakeServer, client: Client) -> None:
    with pytest.raises(ApiStatusError):
        client.get("users", "a/../../b?c")
    assert fake.requests[0].path == f"{M}/users/a%2F..%2F..%2Fb%3Fc"
    for name in ("..", "."):
        with pytest.raises(ClientError, match="is not a valid object name"):
            client.get("users", name)


def test_a_status_becomes_a_problem_with_all_that_it_says(fake: FakeServer, client: Client) -> None:
    causes = [{"field": "spec.ttl", "reason": "FieldValueInvalid", "message": "too long"}, "odd"]
    fake.on("POST", f"{M}/users", (422, failure(422, "Invalid", 'User "a" is invalid', causes=causes)))
    with pytest.raises(ApiStatusError) as caught:
        client.create("users", {})
    problem = caught.value
    assert (problem.code, problem.reason, problem.message) == (422, "Invalid", 'User "a" is invalid')
    assert problem.causes == (Cause("spec.ttl", "FieldValueInvalid", "too long"),)
    assert str(problem) == 'User "a" is invalid'


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (401, "Unauthorized", "log in again with `fairlead login`"),
        (403, "Forbidden", "`fairlead whoami` shows"),
        (404, "NotFound", "check the name"),
        (409, "AlreadyExists", "choose another name"),
        (503, "ServiceUnavailable", "try again in a moment"),
    ],
)
def test_a_refusal_comes_with_advice(fake: FakeServer, client: Client, code: int, reason: str, advice: str) -> None:
    fake.on("GET", f"{M}/users/a", (code, failure(code, reason, 'User "b" cannot do this')))
    with pytest.raises(ApiStatusError, match=f'User "b" cannot do this; {advice}'):
        client.get("users", "a")


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (409, "Conflict")])
def test_a_refusal_that_says_what_to_change_needs_no_more_advice(
    fake: FakeServer, client: Client, code: int, reason: str
) -> None:
    fake.on("GET", f"{M}/users/a", (code, failure(code, reason, "set spec.ttl to at most 60")))
    with pytest.raises(ApiStatusError, match=r"^set spec\.ttl to at most 60$"):
        client.get("users", "a")


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b'["a"]', b'{"message": 5}'])
def test_an_error_that_is_no_status_says_so(fake: FakeServer, client: Client, body: bytes) -> None:
    fake.on("GET", f"{M}/users/a", (502, body))
    with pytest.raises(ApiStatusError, match="responded with status 502 and no message; is it a Fairlead server"):
        client.get("users", "a")


@pytest.mark.parametrize("body", [b"hello", b"[1]", b'"text"'])
def test_an_answer_that_is_no_object_is_not_taken_for_one(fake: FakeServer, client: Client, body: bytes) -> None:
    fake.on("GET", f"{M}/users/a", (200, body))
    with pytest.raises(ClientError, match="not a JSON object"):
        client.get("users", "a")


def test_a_server_that_is_not_running_is_told_as_that(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, KEY) as client, pytest.raises(Unreachable, match="connection refused; check the URL"):
            client.whoami()


def test_an_unknown_authority_is_told_with_the_way_to_give_it(fake: FakeServer) -> None:
    with (
        Client(fake.url, KEY) as client,
        pytest.raises(CertificateError, match="specify the CA with `fairlead login --ca-file`") as caught,
    ):
        client.whoami()
    assert caught.value.unknown_authority
    assert not fake.requests


def test_the_wrong_authority_is_told_as_the_wrong_one(fake: FakeServer, tmp_path: Path) -> None:
    other = ensure_certificates(tmp_path)
    with (
        Client(fake.url, KEY, ca_file=other.ca_file) as client,
        pytest.raises(CertificateError, match="specify the right one"),
    ):
        client.whoami()
    assert not fake.requests


def test_a_port_that_speaks_no_tls_is_told_as_that() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        url = f"https://127.0.0.1:{plain.getsockname()[1]}"

        def greet() -> None:
            connection, _ = plain.accept()
            connection.sendall(b"220 mail ready\r\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with Client(url, KEY) as client, pytest.raises(Unreachable, match="is this the URL of a Fairlead server"):
            client.whoami()
        thread.join()


def test_whoever_asks_for_it_can_talk_to_anybody(fake: FakeServer) -> None:
    fake.on_self()
    with Client(fake.url, KEY, insecure=True) as client:
        assert client.whoami()["user"]["name"] == "alice"


def test_a_proxy_is_not_asked_for_this_machines_own_addresses(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    fake.on_self()
    with Client(fake.url, KEY, ca_file=fake.ca_file) as client:
        assert client.whoami()["accessKey"] == "alice-key"


def test_ca_files_that_hold_no_certificate_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(ClientError, match=r"ca\.crt: contains no PEM certificate"):
        Client("https://127.0.0.1:1", KEY, ca_file=tmp_path / "ca.crt")
    with pytest.raises(ClientError, match="no such file"):
        Client("https://127.0.0.1:1", KEY, ca_file=tmp_path / "none.crt")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "k\u00e9y", "a\r\nHost: b"])
def test_a_key_that_could_not_be_one_is_not_sent(key: str) -> None:
    with pytest.raises(ClientError, match="copy it again"):
        Client("https://127.0.0.1:1", key)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://fairlead.example.com/", "https://fairlead.example.com"),
        ("https://127.0.0.1:8443/kubernetes/management", "https://127.0.0.1:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_addresses_are_taken_as_people_write_them(given: str, url: str) -> None:
    assert normalize_url(given) == url


@pytest.mark.parametrize(
    "given",
    [
        "fairlead.example.com",
        "https://",
        "https://a/b",
        "https://a?x=y",
        "https://u:secret@a",
        "https://a:x",
        "ftp://a",
    ],
)
def test_what_is_no_address_is_refused_without_quoting_passwords(given: str) -> None:
    with pytest.raises(ClientError, match="is not a server URL; use a URL like https://") as caught:
        normalize_url(given)
    assert "secret" not in str(caught.value)


def test_plain_http_is_refused_because_keys_would_be_readable() -> None:
    with pytest.raises(ClientError, match="https only"):
        normalize_url("http://127.0.0.1:8443")


@pytest.mark.parametrize("url", ["https://u:secret@a:x", "http://u:secret@a", "https://u:secret@a", "ftp://u:secret@a"])
def test_a_url_with_a_password_is_not_quoted(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        normalize_url(url)
    assert "secret" not in str(caught.value)
