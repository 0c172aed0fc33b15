"""fairlead.client.contexts: stored logins, file permissions, and how the environment overrides them."""

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
    variables = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    save_contexts(contexts_path(variables), Contexts().with_login("one", ONE).with_login("two", TWO))
    return variables


def test_logins_survive_saving_and_loading(environment: dict[str, str]) -> None:
    assert load_contexts(contexts_path(environment)) == Contexts("two", {"one": ONE, "two": TWO})


def test_the_file_is_readable_by_its_owner_only(environment: dict[str, str]) -> None:
    path = contexts_path(environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_repr_of_a_login_has_no_key() -> None:
    assert "key-1" not in repr(ONE)


def test_the_file_omits_default_values(environment: dict[str, str]) -> None:
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


def test_an_unknown_name_is_rejected_with_the_available_names(environment: dict[str, str]) -> None:
    with pytest.raises(NotLoggedIn, match=r"no login named 'three' \(available: one, two\); log in with"):
        select_login("three", environment)


def test_url_and_key_from_the_environment_replace_the_current_login(environment: dict[str, str]) -> None:
    environment |= {"FAIRLEAD_URL": "https://ci.test/", "FAIRLEAD_KEY": "ci-key"}
    selected = select_login(None, environment)
    assert (selected.name, selected.login) == ("", Login("https://ci.test", "ci-key"))
    assert select_login("one", environment).login == ONE


def test_a_key_from_the_environment_is_used_with_the_current_server(environment: dict[str, str]) -> None:
    selected = select_login(None, environment | {"FAIRLEAD_KEY": "other"})
    assert (selected.name, selected.login) == ("", Login("https://two.test", "other"))


def test_a_stored_key_is_never_sent_to_a_url_from_the_environment(environment: dict[str, str]) -> None:
    with pytest.raises(NotLoggedIn, match="FAIRLEAD_URL is set, but FAIRLEAD_KEY is not; set both"):
        select_login(None, environment | {"FAIRLEAD_URL": "https://evil.test"})


def test_a_ca_file_from_the_environment_is_used_with_and_without_a_url(
    environment: dict[str, str], tmp_path: Path
) -> None:
    authority = ensure_certificates(tmp_path / "tls").ca_file
    assert authority is not None
    environment |= {"FAIRLEAD_CA_FILE": str(authority)}
    assert select_login(None, environment).login.authority == authority.read_text()
    environment |= {"FAIRLEAD_URL": "https://ci.test", "FAIRLEAD_KEY": "ci-key"}
    assert select_login(None, environment).login.authority == authority.read_text()


def test_without_a_login_the_error_has_advice(tmp_path: Path) -> None:
    with pytest.raises(NotLoggedIn, match="no login yet; log in with `fairlead login URL`"):
        select_login(None, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_without_a_current_login_the_error_lists_the_stored_ones(environment: dict[str, str]) -> None:
    path = contexts_path(environment)
    save_contexts(path, load_contexts(path).without_login("two"))
    with pytest.raises(NotLoggedIn, match=r"no current login; .*--context or FAIRLEAD_CONTEXT .*: one"):
        select_login(None, environment)


def test_removing_the_current_login_leaves_none_current(environment: dict[str, str]) -> None:
    contexts = load_contexts(contexts_path(environment))
    assert contexts.without_login("two") == Contexts("", {"one": ONE})
    assert contexts.without_login("one") == Contexts("two", {"two": TWO})


@pytest.mark.parametrize("content", ["a: [b", "[]", "contexts: 5", "contexts: {a: {key: secret-1}}", "current: [x]"])
def test_a_damaged_file_is_reported_without_its_content(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(FileProblem, match="fix it, or remove it and log in again") as caught:
        load_contexts(path)
    assert "secret-1" not in str(caught.value)


def test_relative_xdg_directories_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert contexts_path({"XDG_CONFIG_HOME": "here"}) == Path("/home/alice/.config/fairlead/config.yaml")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://fairlead.example.com:443", "fairlead.example.com"),
        ("https://fairlead.example.com", "fairlead.example.com"),
        ("https://127.0.0.1:8443", "127.0.0.1-8443"),
        ("https://[::1]:8443", "1-8443"),
    ],
)
def test_a_login_is_named_after_its_server(url: str, name: str) -> None:
    assert default_context_name(url, Contexts()) == name


def test_a_login_of_an_earlier_version_keeps_its_name() -> None:
    stored = Contexts().with_login("127.0.0.1:8443", Login("https://127.0.0.1:8443"))
    assert default_context_name("https://127.0.0.1:8443", stored) == "127.0.0.1:8443"
