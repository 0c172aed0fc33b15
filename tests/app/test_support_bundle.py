"""app/support_bundle.py: what is replaced, and what is not."""

import json
import time
from pathlib import Path

import pytest

from fairlead.app.support_bundle import REDACTED, Redactor, describe_settings, find_secrets
from fairlead.core.files import FileProblem
from fairlead.settings import Settings
from fairlead.settings.description import shorten_url


@pytest.mark.parametrize(
    ("url", "shortened"),
    [
        (
            "postgres://ada:se@cret/x@db.example.com:5432/fairlead?password=other",
            "postgres://db.example.com:5432/fairlead",
        ),
        ("postgres://db/fairlead", "postgres://db/fairlead"),
        ("etcd://ada:secret@one:2379,two:2379/prefix?ca=file", "etcd://one:2379,two:2379/prefix"),
        ("sqlite:/var/lib/fairlead/fairlead.db", "sqlite:/var/lib/fairlead/fairlead.db"),
    ],
)
def test_urls_lose_users_passwords_and_queries(url: str, shortened: str) -> None:
    assert shorten_url(url) == shortened


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer canary0123456789",
        '{"password": "canary0123456789"}',
        "FAIRLEAD_ETCD_PASSWORD=canary0123456789",
        "access_key: canary0123456789",
        "postgres://ada:canary0123456789@db/x",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary0123456789",
        "the key fairlead_canary0123456789abcdef was used",
        "-----BEGIN EC PRIVATE KEY-----\ncanary0123456789\n-----END EC PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncanary0123456789, cut off",
        '{"clientSecret": "canary0123456789"}',
        '{"refreshToken":"canary0123456789"}',
        '{"idToken": "canary0123456789"}',
        '{"apiKey": "canary0123456789"}',
        "client_secret=canary0123456789&grant_type=x",
        "Authorization: Basic canary==",
        '{"authorization": "Basic canary0123456789="}',
        "(b'authorization', b'Basic canary0123456789=')",
        "Proxy-Authorization: token canary",
        "GET /auth/oidc/callback?code=canary&state=x HTTP/1.1",
        "GET /auth/oidc/callback?state=x&code=canary HTTP/1.1",
        "code=canary&redirect_uri=x",
        "code=canary0123456789",
        '{"code": "canary0123456789"}',
        '{"password": "a canary"}',
        '{"password": "a, canary", "user": "ada"}',
        '{"password": "a \\" canary", "user": "ada"}',
        "password='a \" canary'",
        "password=b'a canary'",
        '{"event": "{\\"password\\": \\"a, canary\\"}"}',
        '{"event": "{\\"password\\": \\"a \\\\\\" canary\\"}"}',
        "{'token': ['canary0123456789']}",
        '"password": "a canary, cut off',
        "postgres://ada:a/canary@db/x",
        "postgres://ada:a@b/canary@db/x",
        "https://canary@charts.example.com/",
    ],
)
def test_texts_that_look_like_secrets_are_replaced(text: str) -> None:
    redacted = Redactor(())(text)
    assert "canary" not in redacted and REDACTED in redacted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('{"password": "a, \\" b", "user": "ada"}', '{"password": "[REDACTED]", "user": "ada"}'),
        (
            '{"event": "{\\"token\\": \\"a b\\"}", "user": "ada"}',
            '{"event": "{\\"token\\": \\"[REDACTED]\\"}", "user": "ada"}',
        ),
        ("GET /callback?code=abc&state=x HTTP/1.1", "GET /callback?code=[REDACTED]&state=x HTTP/1.1"),
        ("Authorization: Basic abc==\nAccept: */*", "Authorization: Basic [REDACTED]\nAccept: */*"),
        ("postgres://ada:a/b@db/x and https://db/y", "postgres://[REDACTED]@db/x and https://db/y"),
        ("https://a:b@one/x,https://two/y", "https://[REDACTED]@one/x,https://two/y"),
    ],
)
def test_only_the_secret_itself_is_replaced(text: str, redacted: str) -> None:
    assert Redactor(())(text) == redacted


@pytest.mark.parametrize(
    "part", ["://a:", "://a", "token ", 'token="', "token=\\", "/code=a", "authorization ", "-----BEGIN PRIVATE KEY"]
)
def test_long_texts_without_a_secret_do_not_take_long(part: str) -> None:
    started = time.process_time()
    Redactor(())(part * 50_000)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "text",
    [
        '{"event": "ready", "url": "https://127.0.0.1:8443"}',
        "apiserver_request_total 5",
        'apiserver_request_total{code="200",verb="GET"} 5',
        '{"status": "Failure", "reason": "NotFound", "code": 404}',
        '{"code": "InternalServerError"}',
        "the process ended with exit code=137",
        '{"secretName": "db", "kind": "Secret", "token": ""}',
        "https://registry.example.com/@scope/package",
    ],
)
def test_other_texts_are_kept(text: str) -> None:
    assert Redactor({"canary-secret"})(text) == text


def test_secrets_of_the_installation_are_replaced_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "pepper.key").write_text("canary-pepper-0123\n")
    (tmp_path / "encryption.keys").write_text("k1 canary-encryption-key-0123\nk2 canary-encryption-key-4567\n")
    (tmp_path / "admin.kubeconfig").write_text("users: [{name: a, user: {token: canary-t}}]\n")
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "ca.key").write_text(
        "-----BEGIN EC PRIVATE KEY-----\ncanary/tls\n-----END EC PRIVATE KEY-----\n"
    )
    settings = Settings(data=tmp_path, store="postgres://ada:canary%2Fstore@db/x")
    assert "a/canary" in find_secrets(Settings(data=tmp_path, store="postgres://ada:a/canary@db/x?ssl=1"), {})
    secrets = find_secrets(settings, {"FAIRLEAD_ETCD_PASSWORD": "canary-etcd-password"})
    text = "canary-pepper-0123 canary-encryption-key-0123 canary-encryption-key-4567 canary-t canary/tls " * 2
    text += "canary%2Fstore canary/store canary-etcd-password"
    assert "canary" not in Redactor(secrets)(text)


def test_settings_are_described_without_passwords(tmp_path: Path) -> None:
    settings = Settings(
        data=tmp_path,
        store="postgres://ada:canary@db/x",
        chart_repositories=("https://ada:canary@charts.example.com/?token=canary",),
    )
    described = describe_settings(settings)
    assert "canary" not in str(described)
    assert described["settings"]["store"] == "postgres://db/x"  # type: ignore[index]


async def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    from fairlead.app.support_bundle import collect

    with pytest.raises(FileProblem, match="No such file"):
        await collect(Settings(data=tmp_path, store="memory:", port=1), [tmp_path / "none.log"])


async def test_a_file_that_vanishes_is_left_out(tmp_path: Path) -> None:
    from fairlead.app.support_bundle import collect

    (tmp_path / "fairlead.db").write_text("data")
    (tmp_path / "fairlead.db-wal").symlink_to(tmp_path / "vanished")  # listed, and not found
    files = await collect(Settings(data=tmp_path, store="memory:", port=1), [])
    assert list(json.loads(files["machine.json"])["dataFolder"]) == ["fairlead.db"]
