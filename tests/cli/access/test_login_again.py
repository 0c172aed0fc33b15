"""`fairlead login` after a login has ended: address, CA and name of the stored login are used again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.contexts import Login, save_contexts
from fairlead.core.crypto.certificates import ensure_certificates
from tests.harness.cli import CliFixture, describe_unknown_key
from tests.harness.fake_server import KEY, M, build_object, failure_status

KEYS = f"{M}/ownedaccesskeys"
REJECTED = (401, failure_status(401, "Unauthorized", "invalid bearer token"))


@pytest.fixture
def again(user: CliFixture) -> CliFixture:
    """The CLI with the login `test`, whose key is an old one."""
    user.fake.on("GET", "/version", (200, {"version": "0.1.0"}))
    user.save_login(key="an-old-key")
    return user


def store_key(cli: CliFixture, **spec: Any) -> None:
    cli.fake.on("GET", f"{KEYS}/alice-key", (200, build_object("alice-key", spec={"user": "alice"} | spec)))


def change_login(cli: CliFixture, name: str = "test", **changes: Any) -> None:
    stored = cli.load_contexts()
    save_contexts(cli.contexts_file, stored.with_login(name, replace(stored.contexts[name], **changes)))


def test_without_an_address_the_current_login_is_renewed(again: CliFixture) -> None:
    change_login(again, group="example.com")
    again.fake.on("POST", "/kubernetes/management/apis/example.com/v1/selves", (201, {"status": {"subject": "alice"}}))
    result = again.run("login", "--key-stdin", stdin=KEY)
    assert result.code == 0, result.err
    authority = Path(again.fake.ca_file).read_text()
    assert again.load_contexts().contexts == {"test": Login(again.fake.url, KEY, authority, group="example.com")}


@pytest.mark.parametrize("flags", [("--context", "second"), ("--name", "second")])
def test_another_login_can_be_renewed(again: CliFixture, flags: tuple[str, ...]) -> None:
    again.save_login("second", key="another-old-key")
    change_login(again, url="https://other.test")
    assert again.load_contexts().current == "test"
    result = again.run("login", *flags, "--key-stdin", stdin=KEY)
    assert result.code == 0, result.err
    assert {name: each.key for name, each in again.load_contexts().contexts.items()} == {
        "test": "an-old-key",
        "second": KEY,
    }
    assert again.load_contexts().current == "second"


def test_a_login_that_does_not_exist_is_a_usage_error(again: CliFixture) -> None:
    result = again.run("login", "--context", "none", "--key-stdin", stdin=KEY)
    assert (result.code, "no login named 'none' (available: test)" in result.err) == (2, True)


def test_with_the_address_of_a_stored_login_its_ca_is_used(again: CliFixture) -> None:
    result = again.run("login", again.fake.url, "--key-stdin", "--name", "new", stdin=KEY)
    assert result.code == 0, result.err
    assert again.load_contexts().contexts["new"] == replace(again.load_contexts().contexts["test"], key=KEY)


def test_a_stored_ca_that_no_longer_fits_can_be_replaced(again: CliFixture, tmp_path: Path) -> None:
    other = ensure_certificates(tmp_path / "other").ca_file
    assert other is not None
    change_login(again, authority=other.read_text())
    result = again.run("login", "--key-stdin", stdin=KEY)
    advice = "if you trust it, log in again with `fairlead login --ca-file`"
    assert (result.code, advice in result.err) == (1, True), result.err
    assert not again.fake.requests
    again.use_terminal(KEY)
    result = again.run("login", stdin="y\n")
    assert (result.code, "is not signed by the CA of the earlier login" in result.err) == (0, True)
    assert "SHA-256 fingerprint: " in result.err


def distrust_earlier_ca(cli: CliFixture, folder: Path) -> str:
    """The earlier login gets another CA, and the system trusts that of the server. Returns the other CA."""
    other = ensure_certificates(folder / "other").ca_file
    assert other is not None
    change_login(cli, authority=other.read_text())
    cli.patches.setenv("SSL_CERT_FILE", cli.fake.ca_file)
    return other.read_text()


def test_without_a_terminal_the_cas_of_the_system_do_not_replace_a_stored_one(
    again: CliFixture, tmp_path: Path
) -> None:
    other = distrust_earlier_ca(again, tmp_path)
    result = again.run("login", "--key-stdin", stdin=KEY)
    assert (result.code, "`fairlead login --ca-file`" in result.err) == (1, True), result.err
    assert not again.fake.requests
    assert again.load_contexts().contexts["test"].authority == other


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_the_user_can_trust_the_cas_of_the_system_instead(
    again: CliFixture, tmp_path: Path, answer: str, code: int
) -> None:
    other = distrust_earlier_ca(again, tmp_path)
    again.use_terminal(KEY)
    result = again.run("login", stdin=answer)
    assert result.code == code, result.err
    assert "Trust the CAs of this machine instead?" in result.err
    assert again.load_contexts().contexts["test"].authority == ("" if code == 0 else other)
    assert any("authorization" in each.headers for each in again.fake.requests) == (code == 0)


def test_an_insecure_login_is_renewed_with_its_warning(again: CliFixture) -> None:
    change_login(again, authority="", insecure=True)
    result = again.run("login", "--key-stdin", stdin=KEY)
    warning = "can be intercepted and modified (insecure, as in the earlier login; use --ca-file to change that)"
    assert (result.code, warning in result.err) == (0, True), result.err
    assert again.load_contexts().contexts["test"].insecure


@pytest.mark.parametrize(
    ("spec", "expires"),
    [({"ttl": 3600}, "2026-01-01T01:00:00+00:00"), ({}, ""), ({"ttl": 60, "ttlAfterLastActivity": True}, "")],
)
def test_the_expiry_of_the_key_is_stored(again: CliFixture, spec: dict[str, Any], expires: str) -> None:
    store_key(again, **spec)
    assert again.run("login", "--key-stdin", stdin=KEY).code == 0
    assert again.load_contexts().contexts["test"].expires == expires


def test_an_expired_login_says_since_when_and_what_to_run(again: CliFixture) -> None:
    again.fake.on("POST", f"{M}/selves", REJECTED)
    expired = datetime.now(UTC) - timedelta(minutes=2, seconds=30)
    change_login(again, expires=expired.isoformat())
    result = again.run("whoami")
    assert result.err == "fairlead: the key of the login 'test' expired 2m ago; log in again with `fairlead login`\n"
    change_login(again, expires=(expired + timedelta(hours=1)).isoformat())
    assert again.run("whoami").err == describe_unknown_key(again, "fairlead login")


def test_the_advice_names_a_login_that_is_not_the_current_one(again: CliFixture) -> None:
    again.fake.on("POST", f"{M}/selves", REJECTED)
    again.save_login("second")
    result = again.run("whoami", "--context", "test")
    assert result.err == describe_unknown_key(again, "fairlead login --context test")


def test_the_server_in_the_environment_takes_precedence_over_the_current_login(again: CliFixture) -> None:
    again.save_login("prod", key="the-key-of-prod")
    change_login(again, "prod", url="https://prod.test", group="example.com")
    variables = {"FAIRLEAD_URL": again.fake.url, "FAIRLEAD_KEY": KEY, "FAIRLEAD_CONTEXT": "prod"}
    result = again.run("login", **variables)
    assert (result.code, f"logged in to {again.fake.url} as user alice" in result.err) == (0, True), result.err
    assert {name: each.key for name, each in again.load_contexts().contexts.items()} == {
        "test": "an-old-key",
        "prod": "the-key-of-prod",
        again.fake.url.removeprefix("https://").replace(":", "-"): KEY,
    }


@pytest.mark.parametrize("flags", [("--context", "test"), ("URL",)])
def test_the_key_of_the_server_in_the_environment_is_sent_to_no_other(
    again: CliFixture, flags: tuple[str, ...]
) -> None:
    flags = tuple(again.fake.url if each == "URL" else each for each in flags)
    result = again.run("login", *flags, FAIRLEAD_URL="https://ci.test", FAIRLEAD_KEY="the-key-of-ci")
    assert (result.code, "FAIRLEAD_KEY is not used: it is for the server in FAIRLEAD_URL" in result.err) == (2, True)
    assert not [each for each in again.fake.requests if "authorization" in each.headers]


def test_a_server_in_the_environment_that_is_no_url_is_a_usage_error(again: CliFixture) -> None:
    result = again.run("login", FAIRLEAD_URL="http://ci.test", FAIRLEAD_KEY=KEY)
    assert (result.code, "'http://ci.test' is not an https URL" in result.err) == (2, True)


@pytest.mark.parametrize("source", ["flag", "environment"])
def test_a_ca_file_ends_an_insecure_login(again: CliFixture, source: str) -> None:
    change_login(again, authority="", insecure=True)
    flags = ("--ca-file", again.fake.ca_file) if source == "flag" else ()
    variables = {"FAIRLEAD_CA_FILE": again.fake.ca_file} if source == "environment" else {}
    result = again.run("login", "--key-stdin", *flags, stdin=KEY, **variables)
    assert (result.code, "warning: connections" in result.err) == (0, False), result.err
    assert again.load_contexts().contexts["test"] == Login(again.fake.url, KEY, Path(again.fake.ca_file).read_text())
