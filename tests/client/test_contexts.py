"""Logins on the disk: private, named, and overruled by the environment, but no key ever goes to the wrong server."""

import stat
from pathlib import Path

import pytest

from fairlead.client.contexts import (
    Contexts,
    Login,
    NotLoggedIn,
    contexts_path,
    default_context_name,
    load_contexts,
    save_contexts,
    select_login,
)
from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.files import FileProblem

ONE = Login("https://one.test", "key-1", authority="-----BEGIN CERTIFICATE-----\nx\n", group="manage.example.com")
TWO = Login("https://two.test", "key-2")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    found = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    save_contexts(contexts_path(found), Contexts().with_login("one", ONE).with_login("two", TWO))
    return found


def test_logins_come_back_as_they_were_kept(environment: dict[str, str]) -> None:
    assert load_contexts(contexts_path(environment)) == Contexts("two", {"one": ONE, "two": TWO})


def test_nobody_else_can_read_them(environment: dict[str, str]) -> None:
    path = contexts_path(environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_login_never_shows_its_key_when_printed() -> None:
    assert "key-1" not in repr(ONE)


def test_the_file_says_only_what_is_not_the_default(environment: dict[str, str]) -> None:
    text = contexts_path(environment).read_text()
    assert text.count("url:") == text.count("key:") == 2
    assert text.count("authority:") == text.count("group:") == 1
    assert "insecure" not in text


def test_the_current_login_is_used_unless_another_one_is_named(environment: dict[str, str]) -> None:
    assert (select_login(None, environment).name, select_login(None, environment).login) == ("two", TWO)
    assert (select_login("one", environment).name, select_login("one", environment).login) == ("one", ONE)


def test_the_environment_can_name_a_login_too(environment: dict[str, str]) -> None:
    environment |= {"FAIRLEAD_CONTEXT": "one"}
    assert select_login(None, environment).login == ONE
    assert select_login("two", environment).login == TWO
    environment |= {"FAIRLEAD_URL": "https://ci.test", "FAIRLEAD_KEY": "ci-key"}
    assert select_login(None, environment).login.url == "https://ci.test"


def test_a_name_that_nobody_keeps_is_told_with_those_that_are(environment: dict[str, str]) -> None:
    with pytest.raises(NotLoggedIn, match=r"no login named 'three' \(available: one, two\); log in with"):
        select_login("three", environment)


def test_the_environment_takes_the_place_of_a_login(environment: dict[str, str]) -> None:
    environment |= {"FAIRLEAD_URL": "https://ci.test/", "FAIRLEAD_KEY": "ci-key"}
    found = select_login(None, environment)
    assert (found.name, found.login) == ("", Login("https://ci.test", "ci-key"))
    assert select_login("one", environment).login == ONE


def test_a_key_from_the_environment_is_used_with_the_current_server(environment: dict[str, str]) -> None:
    found = select_login(None, environment | {"FAIRLEAD_KEY": "other"})
    assert (found.name, found.login) == ("", Login("https://two.test", "other"))


def test_a_kept_key_never_goes_to_an_address_from_the_environment(environment: dict[str, str]) -> None:
    with pytest.raises(NotLoggedIn, match="FAIRLEAD_URL is set, but FAIRLEAD_KEY is not; set both"):
        select_login(None, environment | {"FAIRLEAD_URL": "https://evil.test"})


def test_a_ca_file_from_the_environment_counts_with_and_without_an_address(
    environment: dict[str, str], tmp_path: Path
) -> None:
    authority = ensure_certificates(tmp_path / "tls").ca_file
    assert authority is not None
    environment |= {"FAIRLEAD_CA_FILE": str(authority)}
    assert select_login(None, environment).login.authority == authority.read_text()
    environment |= {"FAIRLEAD_URL": "https://ci.test", "FAIRLEAD_KEY": "ci-key"}
    assert select_login(None, environment).login.authority == authority.read_text()


def test_without_any_login_there_is_advice(tmp_path: Path) -> None:
    with pytest.raises(NotLoggedIn, match="no login yet; log in with `fairlead login URL`"):
        select_login(None, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_where_no_login_is_current_those_that_are_kept_are_named(environment: dict[str, str]) -> None:
    path = contexts_path(environment)
    save_contexts(path, load_contexts(path).without_login("two"))
    with pytest.raises(NotLoggedIn, match=r"no current login; .*--context or FAIRLEAD_CONTEXT .*: one"):
        select_login(None, environment)


def test_forgetting_the_current_login_leaves_none_current(environment: dict[str, str]) -> None:
    kept = load_contexts(contexts_path(environment))
    assert kept.without_login("two") == Contexts("", {"one": ONE})
    assert kept.without_login("one") == Contexts("two", {"two": TWO})


@pytest.mark.parametrize("content", ["a: [b", "[]", "contexts: 5", "contexts: {a: {key: secret-1}}", "current: [x]"])
def test_a_damaged_file_is_told_without_showing_what_is_in_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(FileProblem, match="fix it, or remove it and log in again") as caught:
        load_contexts(path)
    assert "secret-1" not in str(caught.value)


def test_relative_folders_are_ignored_as_the_xdg_specification_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert contexts_path({"XDG_CONFIG_HOME": "here"}) == Path("/home/alice/.config/fairlead/config.yaml")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://fairlead.example.com:443", "fairlead.example.com"),
        ("https://fairlead.example.com", "fairlead.example.com"),
        ("https://127.0.0.1:8443", "127.0.0.1:8443"),
    ],
)
def test_a_login_is_called_after_its_server(url: str, name: str) -> None:
    assert default_context_name(url) == name
