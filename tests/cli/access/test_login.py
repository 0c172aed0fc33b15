"""`fairlead login` and `logout`: keys and passwords from everywhere but the command line, and trust that is earned."""

import stat
from pathlib import Path

import pytest

from fairlead.client.contexts import Login
from fairlead.client.tls import fetch_certificate, fingerprint
from tests.harness.cli import CliFixture
from tests.harness.fake_server import KEY, M, failure

VERSION = (200, {"version": "0.1.0"})


@pytest.fixture
def ready(cli: CliFixture) -> CliFixture:
    cli.fake.on("GET", "/version", VERSION)
    cli.fake.on_self()
    return cli


def test_a_key_that_works_is_kept_for_the_other_commands(ready: CliFixture) -> None:
    ended = ready.type("login", ready.fake.url, "--key-stdin", "--ca-file", ready.fake.ca_file, stdin=f"{KEY}\n")
    assert (ended.code, ended.out) == (0, "")
    assert f"logged in to {ready.fake.url} as user alice" in ended.err
    assert KEY not in ended.err
    name = ready.fake.url.removeprefix("https://")
    assert ready.kept().current == name
    assert ready.kept().contexts[name] == Login(ready.fake.url, KEY, Path(ready.fake.ca_file).read_text())
    assert stat.S_IMODE(ready.logins.stat().st_mode) == 0o600
    assert ready.type("whoami").code == 0


def test_the_key_is_not_sent_before_the_server_is_trusted(ready: CliFixture) -> None:
    ended = ready.type("login", ready.fake.url, "--key-stdin", stdin=KEY)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"fairlead: {ready.fake.url}: the server's certificate is signed by an unknown CA")
    assert "--ca-file" in ended.err
    assert not ready.fake.requests
    assert not ready.logins.exists()


def test_a_key_that_the_server_refuses_is_not_kept(ready: CliFixture) -> None:
    ready.fake.on("POST", f"{M}/selves", (401, failure(401, "Unauthorized", "invalid bearer token")))
    ended = ready.type("login", ready.fake.url, "--key-stdin", "--ca-file", ready.fake.ca_file, stdin=KEY)
    assert ended.code == 1
    assert "does not accept this key (invalid bearer token); check that it is complete" in ended.err
    assert not ready.logins.exists()


def test_a_key_on_the_command_line_works_with_a_warning(ready: CliFixture) -> None:
    ended = ready.type("login", ready.fake.url, "--key", KEY, "--ca-file", ready.fake.ca_file, "--name", "mine")
    assert ended.code == 0
    assert "warning: the key is now in the shell history; use --key-stdin to avoid that" in ended.err
    assert ready.kept().current == "mine"


def test_the_environment_can_hold_the_key_and_the_authority(ready: CliFixture) -> None:
    variables = {"FAIRLEAD_KEY": KEY, "FAIRLEAD_CA_FILE": ready.fake.ca_file}
    assert ready.type("login", ready.fake.url, **variables).code == 0
    assert next(iter(ready.kept().contexts.values())).key == KEY


def test_without_any_flag_the_person_at_the_terminal_is_asked_for_the_key(ready: CliFixture) -> None:
    ready.use_terminal(f" {KEY} ")
    assert ready.type("login", ready.fake.url, "--ca-file", ready.fake.ca_file).code == 0
    assert next(iter(ready.kept().contexts.values())).key == KEY


def test_where_nobody_can_be_asked_there_is_advice(ready: CliFixture) -> None:
    ended = ready.type("login", ready.fake.url, "--ca-file", ready.fake.ca_file)
    assert ended.code == 2
    assert ended.err.startswith("fairlead: cannot prompt for the access key: stdin is not a terminal; use --key-stdin")


def test_a_password_is_changed_into_a_key(ready: CliFixture) -> None:
    ready.fake.on("POST", "/auth/password/login", (200, {"user": "alice", "accessKey": "login-key"}))
    ready.use_terminal("correct horse")
    ended = ready.type("login", ready.fake.url, "--user", "alice", "--ca-file", ready.fake.ca_file)
    assert ended.code == 0
    (asked,) = ready.fake.asked("POST", "/auth/password/login")
    assert asked.body == {"username": "alice", "password": "correct horse"}
    assert "authorization" not in asked.headers
    assert next(iter(ready.kept().contexts.values())).key == "login-key"
    assert "correct horse" not in ready.logins.read_text() + ended.err


def test_a_password_can_be_piped(ready: CliFixture) -> None:
    ready.fake.on("POST", "/auth/password/login", (200, {"accessKey": "login-key"}))
    flags = ("--user", "alice", "--password-stdin", "--ca-file", ready.fake.ca_file)
    assert ready.type("login", ready.fake.url, *flags, stdin="correct horse\n").code == 0
    assert ready.fake.asked("POST", "/auth/password/login")[0].body["password"] == "correct horse"


def test_a_wrong_password_is_told_in_the_servers_words(ready: CliFixture) -> None:
    ready.fake.on("POST", "/auth/password/login", (401, failure(401, "Unauthorized", "user name or password is wrong")))
    flags = ("--user", "alice", "--password-stdin", "--ca-file", ready.fake.ca_file)
    ended = ready.type("login", ready.fake.url, *flags, stdin="wrong\n")
    assert ended.code == 1
    assert "rejected the login of alice: user name or password is wrong; try again" in ended.err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("localhost:8443",), "use a URL like https://"),
        (("http://localhost:8443",), "access keys are sent over https only"),
        (("https://localhost:8443", "--ca-file", "nowhere.crt"), "nowhere.crt: no such file"),
    ],
)
def test_an_address_or_authority_that_cannot_be_meant_is_a_usage_error(
    cli: CliFixture, words: tuple[str, ...], advice: str
) -> None:
    ended = cli.type("login", *words, "--key-stdin", stdin=KEY)
    assert (ended.code, advice in ended.err) == (2, True)


def test_who_names_no_server_is_told_of_the_one_on_this_machine(cli: CliFixture) -> None:
    assert cli.type("login").err.endswith("like `fairlead login https://127.0.0.1:8443`\n")
    own = cli.home / "share" / "fairlead" / "admin.kubeconfig"
    own.parent.mkdir(parents=True)
    own.touch()
    ended = cli.type("login")
    assert (ended.code, f"`fairlead login --kubeconfig {own}`" in ended.err) == (2, True)


def test_there_is_no_flag_for_a_password(ready: CliFixture) -> None:
    assert ready.type("login", ready.fake.url, "--user", "alice", "--password", "x").code == 2


def test_the_person_may_trust_a_certificate_after_comparing_its_fingerprint(ready: CliFixture) -> None:
    ready.use_terminal(KEY)
    ended = ready.type("login", ready.fake.url, stdin="y\n")
    assert ended.code == 0, ended.err
    certificate = fetch_certificate(ready.fake.url)
    assert f"SHA-256 fingerprint: {fingerprint(certificate)}" in ended.err
    assert next(iter(ready.kept().contexts.values())).authority == certificate


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yes please\n"])
def test_anything_but_yes_leaves_the_certificate_untrusted(ready: CliFixture, answer: str) -> None:
    ready.use_terminal(KEY)
    ended = ready.type("login", ready.fake.url, stdin=answer)
    assert ended.code == 1
    assert not ready.fake.requests
    assert not ready.logins.exists()


def test_a_certificate_that_contradicts_the_given_authority_is_not_up_for_acceptance(
    ready: CliFixture, tmp_path: Path
) -> None:
    from fairlead.core.crypto.certificates import ensure_certificates

    ready.use_terminal(KEY)
    other = ensure_certificates(tmp_path / "other").ca_file
    ended = ready.type("login", ready.fake.url, "--ca-file", str(other), stdin="y\n")
    assert ended.code == 1
    assert "fingerprint" not in ended.err
    assert "specify the right one with `fairlead login --ca-file`" in ended.err


def test_insecure_is_kept_with_a_warning(ready: CliFixture) -> None:
    ended = ready.type("login", ready.fake.url, "--key-stdin", "--insecure", stdin=KEY)
    assert ended.code == 0
    assert "can be intercepted and modified (--insecure)" in ended.err
    assert next(iter(ready.kept().contexts.values())).insecure


def test_a_kubeconfig_has_everything_that_a_login_needs(ready: CliFixture, tmp_path: Path) -> None:
    ready.keep()
    target = tmp_path / "admin.kubeconfig"
    assert ready.type("kubeconfig", "-o", str(target)).code == 0
    ready.logins.unlink()
    ended = ready.type("login", "--kubeconfig", str(target), "--name", "local")
    assert ended.code == 0, ended.err
    assert ready.kept().contexts["local"] == Login(ready.fake.url, KEY, Path(ready.fake.ca_file).read_text())


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("https://a.test", "--key", "k", "--user", "u"), "--key and --user are different ways to log in; choose one"),
        (("https://a.test", "--password-stdin"), "--password-stdin requires a user; set it with --user"),
        (("https://a.test", "--insecure", "--ca-file", "x"), "choose one"),
        ((), "set the URL of the server, like `fairlead login https://127.0.0.1:8443`"),
    ],
)
def test_flags_that_contradict_each_other_are_a_usage_error(
    cli: CliFixture, flags: tuple[str, ...], advice: str
) -> None:
    ended = cli.type("login", *flags)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("fairlead: ") and advice in ended.err
    assert ended.err.count("\n") == 1


def test_logging_in_again_ends_the_login_key_from_before(ready: CliFixture) -> None:
    name = ready.fake.url.removeprefix("https://")
    ready.keep(name, key="old-login-key")
    ready.fake.on_self(accessKeyType="Login", accessKey="alice-login")
    ready.fake.on("DELETE", f"{M}/ownedaccesskeys/alice-login", (200, {}))
    ready.type("login", ready.fake.url, "--key-stdin", "--ca-file", ready.fake.ca_file, stdin=KEY)
    (ended,) = ready.fake.asked("DELETE", f"{M}/ownedaccesskeys/alice-login")
    assert ended.headers["authorization"] == "Bearer old-login-key"
    assert ready.kept().contexts[name].key == KEY


def test_logging_out_ends_a_login_key_and_forgets_it(user: CliFixture) -> None:
    user.fake.on_self(accessKeyType="Login", accessKey="alice-login")
    user.fake.on("DELETE", f"{M}/ownedaccesskeys/alice-login", (200, {}))
    ended = user.type("logout")
    assert (ended.code, ended.out) == (0, "")
    assert "the key alice-login is revoked" in ended.err
    assert len(user.fake.asked("DELETE", f"{M}/ownedaccesskeys/alice-login")) == 1
    assert user.kept().contexts == {}


def test_logging_out_leaves_a_key_that_somebody_made(user: CliFixture) -> None:
    ended = user.type("logout", "--context", "test")
    assert ended.code == 0
    assert "the key alice-key stays valid; revoke it with `fairlead key revoke alice-key`" in ended.err
    assert {each.method for each in user.fake.requests} == {"POST"}
    assert user.kept().contexts == {}


def test_a_login_is_forgotten_even_if_the_server_cannot_be_told(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (503, failure(503, "ServiceUnavailable", "the disk is full")))
    ended = user.type("logout")
    assert ended.code == 0
    assert "warning: the key was not revoked on the server (the disk is full" in ended.err
    assert user.kept().contexts == {}


def test_a_login_of_the_environment_is_not_ours_to_forget(cli: CliFixture) -> None:
    variables = {"FAIRLEAD_URL": cli.fake.url, "FAIRLEAD_KEY": KEY, "FAIRLEAD_CA_FILE": cli.fake.ca_file}
    ended = cli.type("logout", **variables)
    assert ended.code == 2
    assert "unset FAIRLEAD_URL and FAIRLEAD_KEY" in ended.err
