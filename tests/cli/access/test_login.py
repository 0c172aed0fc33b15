"""`fairlead login` and `logout`: keys, passwords, and trust in the server's certificate."""

import stat
from pathlib import Path

import pytest

from fairlead.client.contexts import Login
from fairlead.client.kubeconfig import KubeconfigEntry, cluster_entry, merge_into_file
from fairlead.client.tls import fetch_certificate, fingerprint
from tests.harness.cli import CliFixture
from tests.harness.fake_server import KEY, M, failure_status

VERSION = (200, {"version": "0.1.0"})


@pytest.fixture
def login_cli(cli: CliFixture) -> CliFixture:
    cli.fake.on("GET", "/version", VERSION)
    cli.fake.on_self()
    return cli


def test_an_accepted_key_is_stored_for_the_other_commands(login_cli: CliFixture) -> None:
    result = login_cli.run(
        "login", login_cli.fake.url, "--key-stdin", "--ca-file", login_cli.fake.ca_file, stdin=f"{KEY}\n"
    )
    assert (result.code, result.out) == (0, "")
    assert f"logged in to {login_cli.fake.url} as user alice" in result.err
    assert KEY not in result.err
    name = login_cli.fake.url.removeprefix("https://").replace(":", "-")
    assert login_cli.load_contexts().current == name
    assert login_cli.load_contexts().contexts[name] == Login(
        login_cli.fake.url, KEY, Path(login_cli.fake.ca_file).read_text()
    )
    assert stat.S_IMODE(login_cli.contexts_file.stat().st_mode) == 0o600
    assert login_cli.run("whoami").code == 0


def test_the_key_is_not_sent_before_the_server_is_trusted(login_cli: CliFixture) -> None:
    result = login_cli.run("login", login_cli.fake.url, "--key-stdin", stdin=KEY)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"fairlead: {login_cli.fake.url}: the server's certificate is signed by an unknown CA")
    assert "--ca-file" in result.err
    assert not login_cli.fake.requests
    assert not login_cli.contexts_file.exists()


def test_a_key_that_the_server_rejects_is_not_stored(login_cli: CliFixture) -> None:
    login_cli.fake.on("POST", f"{M}/selves", (401, failure_status(401, "Unauthorized", "invalid bearer token")))
    result = login_cli.run("login", login_cli.fake.url, "--key-stdin", "--ca-file", login_cli.fake.ca_file, stdin=KEY)
    assert result.code == 1
    assert "does not accept this key (invalid bearer token); check that it is complete" in result.err
    assert not login_cli.contexts_file.exists()


def test_a_key_on_the_command_line_works_with_a_warning(login_cli: CliFixture) -> None:
    result = login_cli.run(
        "login", login_cli.fake.url, "--key", KEY, "--ca-file", login_cli.fake.ca_file, "--name", "mine"
    )
    assert result.code == 0
    assert "warning: the key is now in the shell history; use --key-stdin to avoid that" in result.err
    assert login_cli.load_contexts().current == "mine"


def test_key_and_ca_file_can_come_from_the_environment(login_cli: CliFixture) -> None:
    variables = {"FAIRLEAD_KEY": KEY, "FAIRLEAD_CA_FILE": login_cli.fake.ca_file}
    assert login_cli.run("login", login_cli.fake.url, **variables).code == 0
    assert next(iter(login_cli.load_contexts().contexts.values())).key == KEY


def test_without_flags_the_terminal_prompts_for_the_key(login_cli: CliFixture) -> None:
    login_cli.use_terminal(f" {KEY} ")
    assert login_cli.run("login", login_cli.fake.url, "--ca-file", login_cli.fake.ca_file).code == 0
    assert next(iter(login_cli.load_contexts().contexts.values())).key == KEY


def test_without_a_terminal_the_error_names_the_flag(login_cli: CliFixture) -> None:
    result = login_cli.run("login", login_cli.fake.url, "--ca-file", login_cli.fake.ca_file)
    assert result.code == 2
    advice = "stdin is not a terminal; use --device, --key-stdin"
    assert result.err.startswith(f"fairlead: cannot prompt for the access key: {advice}")


def test_a_password_login_stores_a_key(login_cli: CliFixture) -> None:
    login_cli.fake.on("POST", "/auth/password/login", (200, {"user": "alice", "accessKey": "login-key"}))
    login_cli.use_terminal("correct horse")
    result = login_cli.run("login", login_cli.fake.url, "--user", "alice", "--ca-file", login_cli.fake.ca_file)
    assert result.code == 0
    (request,) = login_cli.fake.requests_to("POST", "/auth/password/login")
    assert request.body == {"username": "alice", "password": "correct horse"}
    assert "authorization" not in request.headers
    assert next(iter(login_cli.load_contexts().contexts.values())).key == "login-key"
    assert "correct horse" not in login_cli.contexts_file.read_text() + result.err


def test_a_password_can_be_piped(login_cli: CliFixture) -> None:
    login_cli.fake.on("POST", "/auth/password/login", (200, {"accessKey": "login-key"}))
    flags = ("--user", "alice", "--password-stdin", "--ca-file", login_cli.fake.ca_file)
    assert login_cli.run("login", login_cli.fake.url, *flags, stdin="correct horse\n").code == 0
    assert login_cli.fake.requests_to("POST", "/auth/password/login")[0].body["password"] == "correct horse"


def test_a_wrong_password_is_reported_with_the_message_of_the_server(login_cli: CliFixture) -> None:
    login_cli.fake.on(
        "POST", "/auth/password/login", (401, failure_status(401, "Unauthorized", "user name or password is wrong"))
    )
    flags = ("--user", "alice", "--password-stdin", "--ca-file", login_cli.fake.ca_file)
    result = login_cli.run("login", login_cli.fake.url, *flags, stdin="wrong\n")
    assert result.code == 1
    assert "rejected the login of alice: user name or password is wrong; try again" in result.err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("localhost/path",), "use a URL like https://"),
        (("http://localhost:8443",), "access keys are sent over https only"),
        (("https://localhost:8443", "--ca-file", "nowhere.crt"), "nowhere.crt: no such file"),
    ],
)
def test_an_invalid_url_or_ca_file_is_a_usage_error(cli: CliFixture, arguments: tuple[str, ...], advice: str) -> None:
    result = cli.run("login", *arguments, "--key-stdin", stdin=KEY)
    assert (result.code, advice in result.err) == (2, True)


def test_without_a_url_the_error_suggests_the_server_on_this_machine(cli: CliFixture) -> None:
    assert cli.run("login").err.endswith("like `fairlead login 127.0.0.1:8443`\n")
    kubeconfig = cli.home / "share" / "fairlead" / "admin.kubeconfig"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.touch()
    result = cli.run("login")
    assert (result.code, f"`fairlead login --kubeconfig {kubeconfig}`" in result.err) == (2, True)


def test_there_is_no_flag_for_a_password(login_cli: CliFixture) -> None:
    assert login_cli.run("login", login_cli.fake.url, "--user", "alice", "--password", "x").code == 2


def test_a_certificate_can_be_accepted_after_comparing_its_fingerprint(login_cli: CliFixture) -> None:
    login_cli.use_terminal(KEY)
    result = login_cli.run("login", login_cli.fake.url, stdin="y\n")
    assert result.code == 0, result.err
    certificate = fetch_certificate(login_cli.fake.url)
    assert f"SHA-256 fingerprint: {fingerprint(certificate)}" in result.err
    assert next(iter(login_cli.load_contexts().contexts.values())).authority == certificate


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yes please\n"])
def test_anything_but_yes_leaves_the_certificate_untrusted(login_cli: CliFixture, answer: str) -> None:
    login_cli.use_terminal(KEY)
    result = login_cli.run("login", login_cli.fake.url, stdin=answer)
    assert result.code == 1
    assert not login_cli.fake.requests
    assert not login_cli.contexts_file.exists()


def test_a_certificate_of_another_ca_than_the_given_one_cannot_be_accepted(
    login_cli: CliFixture, tmp_path: Path
) -> None:
    from fairlead.core.crypto.certificates import ensure_certificates

    login_cli.use_terminal(KEY)
    other = ensure_certificates(tmp_path / "other").ca_file
    result = login_cli.run("login", login_cli.fake.url, "--ca-file", str(other), stdin="y\n")
    assert result.code == 1
    assert "fingerprint" not in result.err
    assert "if you trust it, log in again with `fairlead login --ca-file`" in result.err


def test_insecure_is_stored_with_a_warning(login_cli: CliFixture) -> None:
    result = login_cli.run("login", login_cli.fake.url, "--key-stdin", "--insecure", stdin=KEY)
    assert result.code == 0
    assert "can be intercepted and modified (--insecure)" in result.err
    assert next(iter(login_cli.load_contexts().contexts.values())).insecure


def test_a_login_can_be_read_from_a_kubeconfig(login_cli: CliFixture, tmp_path: Path) -> None:
    login_cli.save_login()
    target = tmp_path / "admin.kubeconfig"
    assert login_cli.run("kubeconfig", "-o", str(target)).code == 0
    login_cli.contexts_file.unlink()
    result = login_cli.run("login", "--kubeconfig", str(target), "--name", "local")
    assert result.code == 0, result.err
    assert login_cli.load_contexts().contexts["local"] == Login(
        login_cli.fake.url, KEY, Path(login_cli.fake.ca_file).read_text()
    )


def test_an_insecure_kubeconfig_is_used_with_a_warning_or_with_a_ca_file(login_cli: CliFixture, tmp_path: Path) -> None:
    target = tmp_path / "admin.kubeconfig"
    cluster = {"server": f"{login_cli.fake.url}/kubernetes/management", "insecure-skip-tls-verify": True}
    merge_into_file(target, KubeconfigEntry("fairlead", cluster, {"token": KEY}))
    command = ("login", "--kubeconfig", str(target), "--name", "local")
    result = login_cli.run(*command)
    assert (result.code, "(insecure, as in the kubeconfig; use --ca-file" in result.err) == (0, True), result.err
    assert login_cli.load_contexts().contexts["local"].insecure
    result = login_cli.run(*command, "--ca-file", login_cli.fake.ca_file)
    assert (result.code, "warning: connections" in result.err) == (0, False), result.err
    assert not login_cli.load_contexts().contexts["local"].insecure


def test_a_login_can_be_read_from_the_context_of_a_gateway(login_cli: CliFixture, tmp_path: Path) -> None:
    target, authority = tmp_path / "admin.kubeconfig", Path(login_cli.fake.ca_file).read_text()
    login = Login(login_cli.fake.url, KEY, authority)
    gateway = cluster_entry(login, "/kubernetes/project/shop/space/dev")
    merge_into_file(target, KubeconfigEntry("fairlead", cluster_entry(login), {"token": KEY}))
    merge_into_file(target, KubeconfigEntry("dev", gateway, {"token": KEY}))
    for flags in ((), ("--context", "fairlead")):
        result = login_cli.run("login", "--kubeconfig", str(target), "--name", "local", *flags)
        assert result.code == 0, result.err
        assert login_cli.load_contexts().contexts["local"] == login
    result = login_cli.run("login", "--kubeconfig", str(target), "--context", "prod")
    assert (result.code, f"{target}: no context 'prod'" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("https://a.test", "--key", "k", "--user", "u"), "--key and --user are different ways to log in; choose one"),
        (("https://a.test", "--password-stdin"), "--password-stdin requires a user; set it with --user"),
        (("https://a.test", "--insecure", "--ca-file", "x"), "choose one"),
        (("https://a.test", "--context", "x"), "--context selects a stored login with its address"),
        ((), "set the URL of the server, like `fairlead login 127.0.0.1:8443`"),
    ],
)
def test_flags_that_contradict_each_other_are_a_usage_error(
    cli: CliFixture, flags: tuple[str, ...], advice: str
) -> None:
    result = cli.run("login", *flags)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("fairlead: ") and advice in result.err
    assert result.err.count("\n") == 1


def test_a_new_login_revokes_the_previous_login_key(login_cli: CliFixture) -> None:
    name = login_cli.fake.url.removeprefix("https://").replace(":", "-")
    login_cli.save_login(name, key="old-login-key")
    login_cli.fake.on_self(accessKeyType="Login", accessKey="alice-login")
    login_cli.fake.on("DELETE", f"{M}/ownedaccesskeys/alice-login", (200, {}))
    login_cli.run("login", login_cli.fake.url, "--key-stdin", "--ca-file", login_cli.fake.ca_file, stdin=KEY)
    (revocation,) = login_cli.fake.requests_to("DELETE", f"{M}/ownedaccesskeys/alice-login")
    assert revocation.headers["authorization"] == "Bearer old-login-key"
    assert login_cli.load_contexts().contexts[name].key == KEY


def test_logout_revokes_a_login_key_and_removes_the_login(user: CliFixture) -> None:
    user.fake.on_self(accessKeyType="Login", accessKey="alice-login")
    user.fake.on("DELETE", f"{M}/ownedaccesskeys/alice-login", (200, {}))
    result = user.run("logout")
    assert (result.code, result.out) == (0, "")
    assert "the key alice-login is revoked" in result.err
    assert len(user.fake.requests_to("DELETE", f"{M}/ownedaccesskeys/alice-login")) == 1
    assert user.load_contexts().contexts == {}


def test_logout_of_all_logins_is_one_request(user: CliFixture) -> None:
    user.fake.on("POST", "/auth/logout", (200, {"message": "signed out everywhere: 3 logins revoked"}))
    result = user.run("logout", "--all")
    assert result.code == 0
    assert "3 logins revoked" in result.err
    assert user.load_contexts().contexts == {}


def test_logout_does_not_revoke_a_key_that_was_created_separately(user: CliFixture) -> None:
    result = user.run("logout", "--context", "test")
    assert result.code == 0
    assert "the key alice-key stays valid; revoke it with `fairlead key revoke alice-key`" in result.err
    assert {each.method for each in user.fake.requests} == {"POST"}
    assert user.load_contexts().contexts == {}


def test_logout_removes_the_login_even_if_the_server_fails(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (503, failure_status(503, "ServiceUnavailable", "the disk is full")))
    result = user.run("logout")
    assert result.code == 0
    assert "warning: the key was not revoked on the server (the disk is full" in result.err
    assert user.load_contexts().contexts == {}


def test_logout_with_a_login_from_the_environment_is_a_usage_error(cli: CliFixture) -> None:
    variables = {"FAIRLEAD_URL": cli.fake.url, "FAIRLEAD_KEY": KEY, "FAIRLEAD_CA_FILE": cli.fake.ca_file}
    result = cli.run("logout", **variables)
    assert result.code == 2
    assert "unset FAIRLEAD_URL and FAIRLEAD_KEY" in result.err
