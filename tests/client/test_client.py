"""fairlead.client.client: requests, responses, errors, TLS, and that the access key is sent in its header only."""

import socket
import threading
from pathlib import Path

import pytest

from fairlead.client import ApiStatusError, Cause, CertificateError, Client, ClientError, Unreachable
from fairlead.client.client import normalize_url
from fairlead.core.crypto.certificates import ensure_certificates
from tests.harness.fake_server import KEY, FakeServer, M, build_object, failure_status, list_response


def test_list_reads_all_pages(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users", list_response(build_object("a"), token="more"), list_response(build_object("b")))
    assert [each["metadata"]["name"] for each in client.list("users", labels="x=y")] == ["a", "b"]
    first, second = fake.requests
    assert first.query == {"limit": "500", "labelSelector": "x=y"}
    assert second.query == {"limit": "500", "labelSelector": "x=y", "continue": "more"}


def test_each_verb_uses_its_method_and_path(fake: FakeServer, client: Client) -> None:
    for method, path in (
        ("GET", f"{M}/users/alice"),
        ("POST", f"{M}/namespaces/p/apps"),
        ("PATCH", f"{M}/users/alice"),
        ("POST", f"{M}/users/alice/profile"),
        ("DELETE", f"{M}/users/alice"),
    ):
        fake.on(method, path, (200, build_object("seen")))
    client.get("users", "alice")
    client.create("apps", {"spec": {}}, namespace="p")
    client.patch("users", "alice", {"spec": {"disabled": True}})
    client.invoke_action("users", "alice", "profile", {"email": "a@example.com"})
    assert client.delete("users", "alice") == build_object("seen")
    patched = fake.requests_to("PATCH", f"{M}/users/alice")[0]
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.body == {"spec": {"disabled": True}}


def test_another_api_group_changes_the_path(fake: FakeServer) -> None:
    fake.on("GET", "/kubernetes/management/apis/manage.example.com/v1/users/a", (200, build_object("a")))
    with Client(fake.url, KEY, ca_file=fake.ca_file, group="manage.example.com") as client:
        assert client.get("users", "a") == build_object("a")


def test_an_object_is_sent_with_the_api_version_of_its_group(fake: FakeServer, client: Client) -> None:
    fake.on("POST", f"{M}/users", lambda request: (201, request.body))
    assert client.create("users", {"kind": "User"}) == {"kind": "User", "apiVersion": "management.service.sh/v1"}
    assert client.create("users", {"kind": "User", "apiVersion": "x/v1"})["apiVersion"] == "x/v1"
    assert client.create("users", {"spec": {}}) == {"spec": {}}


def test_an_object_with_a_kind_is_sent_with_strict_field_validation(fake: FakeServer, client: Client) -> None:
    fake.on("POST", f"{M}/users", (201, build_object("a")))
    client.create("users", {"kind": "User"})
    client.create("users", {"spec": {}})
    assert [each.query for each in fake.requests_to("POST", f"{M}/users")] == [{"fieldValidation": "Strict"}, {}]


def test_warning_headers_are_passed_to_the_callback(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users/a", (200, build_object("a")))
    fake.warnings += [r'299 - "unknown field \"spec.x\""', '299 fairlead "old, very old", 299 - "older"', "nonsense"]
    client.get("users", "a")
    warnings: list[str] = []
    client.on_warning = warnings.append
    client.get("users", "a")
    assert warnings == ['unknown field "spec.x"', "old, very old", "older"]


def test_the_key_is_only_in_the_authorization_header(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users", list_response(build_object("a"), token="more"), list_response())
    list(client.list("users"))
    for request in fake.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in request.path + str(request.query)
        assert [name for name, value in request.headers.items() if KEY in value] == ["authorization"]
    assert KEY not in repr(vars(client)) + repr(vars(client._http))


def test_a_redirect_is_not_followed_because_it_would_carry_the_key(fake: FakeServer, client: Client) -> None:
    fake.on("GET", f"{M}/users/a", (302, {}))
    with pytest.raises(ApiStatusError, match="responded with status 302"):
        client.get("users", "a")
    assert len(fake.requests) == 1


def test_object_names_are_escaped_in_the_path(fake: FakeServer, client: Client) -> None:
    with pytest.raises(ApiStatusError):
        client.get("users", "a b?c%2F")
    assert fake.requests[0].path == f"{M}/users/a%20b%3Fc%252F"


def test_a_name_is_one_segment_of_the_path(client: Client) -> None:
    for name in ("..", ".", "a/../../b", "a/status", "/"):
        with pytest.raises(ClientError, match="is not a valid object name"):
            client.get("users", name)


def test_an_empty_name_never_means_all_objects(fake: FakeServer, client: Client) -> None:
    calls = (
        lambda: client.get("projects", ""),
        lambda: client.delete("projects", ""),
        lambda: client.patch("projects", "", {}),
        lambda: client.invoke_action("projects", "", "migrate", {}),
        lambda: client.send("DELETE", client.core_path("secrets", "", namespace="default")),
    )
    for call in calls:
        with pytest.raises(ClientError, match="name of the object is empty"):
            call()
    assert fake.requests == []


def test_a_status_becomes_an_error_with_its_code_reason_and_causes(fake: FakeServer, client: Client) -> None:
    causes = [{"field": "spec.ttl", "reason": "FieldValueInvalid", "message": "too long"}, "odd"]
    fake.on("POST", f"{M}/users", (422, failure_status(422, "Invalid", 'User "a" is invalid', causes=causes)))
    with pytest.raises(ApiStatusError) as caught:
        client.create("users", {})
    error = caught.value
    assert (error.code, error.reason, error.message) == (422, "Invalid", 'User "a" is invalid')
    assert error.causes == (Cause("spec.ttl", "FieldValueInvalid", "too long"),)
    assert str(error) == 'User "a" is invalid'


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
def test_an_error_status_comes_with_advice(
    fake: FakeServer, client: Client, code: int, reason: str, advice: str
) -> None:
    fake.on("GET", f"{M}/users/a", (code, failure_status(code, reason, 'User "b" cannot do this')))
    with pytest.raises(ApiStatusError, match=f'User "b" cannot do this; {advice}'):
        client.get("users", "a")


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (409, "Conflict")])
def test_an_error_message_with_advice_of_its_own_gets_no_more(
    fake: FakeServer, client: Client, code: int, reason: str
) -> None:
    fake.on("GET", f"{M}/users/a", (code, failure_status(code, reason, "set spec.ttl to at most 60")))
    with pytest.raises(ApiStatusError, match=r"^set spec\.ttl to at most 60$"):
        client.get("users", "a")


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b'["a"]', b'{"message": 5}'])
def test_an_error_response_that_is_not_a_status_is_reported_as_such(
    fake: FakeServer, client: Client, body: bytes
) -> None:
    fake.on("GET", f"{M}/users/a", (502, body))
    with pytest.raises(ApiStatusError, match="responded with status 502 and no message; is it a Fairlead server"):
        client.get("users", "a")


@pytest.mark.parametrize("body", [b"hello", b"[1]", b'"text"'])
def test_a_response_that_is_not_a_json_object_is_an_error(fake: FakeServer, client: Client, body: bytes) -> None:
    fake.on("GET", f"{M}/users/a", (200, body))
    with pytest.raises(ClientError, match="not a JSON object"):
        client.get("users", "a")


def test_a_refused_connection_raises_unreachable(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url, KEY) as client, pytest.raises(Unreachable, match="connection refused; check the URL"):
            client.whoami()


def test_an_unknown_ca_raises_a_certificate_error_that_names_the_flag(fake: FakeServer) -> None:
    with (
        Client(fake.url, KEY) as client,
        pytest.raises(CertificateError, match="specify the CA with `fairlead login --ca-file`") as caught,
    ):
        client.whoami()
    assert caught.value.unknown_authority
    assert not fake.requests


def test_a_wrong_ca_file_raises_a_certificate_error(fake: FakeServer, tmp_path: Path) -> None:
    other = ensure_certificates(tmp_path)
    with (
        Client(fake.url, KEY, ca_file=other.ca_file) as client,
        pytest.raises(CertificateError, match="is not signed by the configured CA"),
    ):
        client.whoami()
    assert not fake.requests


def test_a_port_without_tls_raises_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"

        def send_greeting() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"220 mail ready\r\n")
            connection.close()

        thread = threading.Thread(target=send_greeting)
        thread.start()
        with Client(url, KEY) as client, pytest.raises(Unreachable, match="is this the URL of a Fairlead server"):
            client.whoami()
        thread.join()


def test_insecure_skips_the_certificate_check(fake: FakeServer) -> None:
    fake.on_self()
    with Client(fake.url, KEY, insecure=True) as client:
        assert client.whoami()["user"]["name"] == "alice"


def test_loopback_addresses_bypass_the_proxy(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    fake.on_self()
    with Client(fake.url, KEY, ca_file=fake.ca_file) as client:
        assert client.whoami()["accessKey"] == "alice-key"


def test_a_ca_file_without_a_certificate_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(ClientError, match=r"ca\.crt: contains no PEM certificate"):
        Client("https://127.0.0.1:1", KEY, ca_file=tmp_path / "ca.crt")
    with pytest.raises(ClientError, match="no such file"):
        Client("https://127.0.0.1:1", KEY, ca_file=tmp_path / "none.crt")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "k\u00e9y", "a\r\nHost: b"])
def test_a_malformed_key_is_rejected(key: str) -> None:
    with pytest.raises(ClientError, match="copy it again"):
        Client("https://127.0.0.1:1", key)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://fairlead.example.com/", "https://fairlead.example.com"),
        ("https://127.0.0.1:8443/kubernetes/management", "https://127.0.0.1:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
        ("https://127.0.0.1:8443/kubernetes/cluster/berlin", "https://127.0.0.1:8443"),
        ("https://127.0.0.1:8443/kubernetes/project/shop/space/dev/", "https://127.0.0.1:8443"),
        ("127.0.0.1:8443/kubernetes/project/shop/virtualcluster/dev", "https://127.0.0.1:8443"),
    ],
)
def test_server_urls_are_normalized(text: str, url: str) -> None:
    assert normalize_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "fairlead.example.com/path",
        "https://",
        "https://a/b",
        "https://a/b/kubernetes/cluster/c",
        "https://a/kubernetes/cluster",
        "https://a/kubernetes/project/p/other/s",
        "https://a?x=/kubernetes/cluster/c",
        "https://a?x=y",
        "https://u:secret@a",
        "https://a:x",
        "ftp://a",
    ],
)
def test_an_invalid_server_url_is_rejected_without_quoting_passwords(text: str) -> None:
    with pytest.raises(ClientError, match="is not a server URL; use a URL like https://") as caught:
        normalize_url(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["127.0.0.1:8443", "localhost", "fairlead.example.com:443", "[::1]:8443"])
def test_a_host_without_a_scheme_is_an_https_url(text: str) -> None:
    assert normalize_url(f" {text}/ ") == f"https://{text}"


def test_plain_http_is_rejected_because_keys_would_be_readable() -> None:
    with pytest.raises(ClientError, match=r"https only; use https://127.0.0.1:8443$"):
        normalize_url("http://127.0.0.1:8443")


@pytest.mark.parametrize("url", ["https://u:secret@a:x", "http://u:secret@a", "https://u:secret@a", "ftp://u:secret@a"])
def test_a_url_with_a_password_is_not_quoted(url: str) -> None:
    with pytest.raises(ClientError) as caught:
        normalize_url(url)
    assert "secret" not in str(caught.value)


def test_a_401_in_plain_text_says_to_log_in_again_and_does_not_doubt_the_server() -> None:
    error = ApiStatusError.parse(401, b"invalid bearer token\n", "https://fairlead.example.com")
    assert (error.code, error.reason) == (401, "Unauthorized")
    assert str(error) == "invalid bearer token; log in again with `fairlead login`"
    assert "is it a Fairlead server" not in str(error)
