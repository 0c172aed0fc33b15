"""`fairlead login` through the console, `fairlead credential`, and how the key of such a login is refreshed."""

import calendar
import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import yaml

from fairlead.cli.access import browser_login
from fairlead.client.contexts import Login, save_contexts
from fairlead.client.login_sessions import LoginSession, session_path
from fairlead.exec_credential import serve_fresh_credential
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request

TOKEN, DEVICE, REVOKE, METHODS = "/auth/token", "/auth/device", "/auth/revoke", "/auth/methods"
ENABLED = (200, {"methods": {"cli": {"enabled": True, "url": ""}}})


def tokens(number: int, seconds: int = 600) -> tuple[int, dict[str, Any]]:
    reply = {"access_token": f"key-{number}", "refresh_token": f"refresh-{number}", "expires_in": seconds}
    return 200, {**reply, "token_type": "Bearer"}


def rejection(error: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": error, "error_description": f"{error} it is"}


@pytest.fixture
def console(cli: CliFixture) -> CliFixture:
    cli.fake.on("GET", "/version", (200, {"version": "0.1.0"}))
    cli.fake.on("GET", METHODS, ENABLED)
    cli.fake.on("POST", TOKEN, tokens(1))
    cli.fake.on("POST", REVOKE, (200, {}))
    cli.fake.on_self()
    cli.patches.setattr(time, "sleep", lambda seconds: None)
    return cli


def session_file(cli: CliFixture, name: str = "test") -> Path:
    return session_path(name, {"XDG_CONFIG_HOME": str(cli.home / "config")})


def save_session(cli: CliFixture, age: float, name: str = "test", number: int = 1) -> None:
    """Saves a login whose key of ten minutes was issued `age` seconds ago."""
    login = Login(cli.fake.url, "", Path(cli.fake.ca_file).read_text(), session=name)
    save_contexts(cli.contexts_file, cli.load_contexts().with_login(name, login))
    issued = time.time() - age
    path = session_file(cli, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    session = LoginSession(cli.fake.url, f"key-{number}", f"refresh-{number}", issued, issued + 600)
    path.write_text(json.dumps({each: getattr(session, each) for each in LoginSession.__slots__}))


def log_in(cli: CliFixture, *flags: str) -> Any:
    return cli.run("login", cli.fake.url, "--ca-file", cli.fake.ca_file, "--name", "test", *flags)


def visit(answer: Callable[[dict[str, str]], list[str]]) -> Callable[[str], None]:
    """A browser: gets the parameters of the page, and opens the addresses that `answer` returns."""

    def open_page(page: str) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}

        def run() -> None:
            for address in answer(query):
                try:
                    urllib.request.urlopen(address, timeout=10).read()
                except HTTPError as error:
                    error.close()

        threading.Thread(target=run).start()

    return open_page


def use_browser(cli: CliFixture, answer: Callable[[dict[str, str]], list[str]]) -> None:
    cli.use_terminal()
    cli.patches.setattr("fairlead.cli.access.login.has_browser", lambda: True)
    cli.patches.setattr("webbrowser.open", visit(answer))


def test_a_login_in_the_browser_is_stored_without_its_key_in_the_contexts(console: CliFixture) -> None:
    seen: dict[str, str] = {}

    def agree(query: dict[str, str]) -> list[str]:
        seen.update(query)
        return [f"{query['redirect_uri']}?{urlencode({'code': 'the-code', 'state': query['state']})}"]

    use_browser(console, agree)
    result = log_in(console)
    assert result.code == 0 and "as user alice" in result.err and f"{console.fake.url}/console/authorize?" in result.err
    (request,) = console.fake.requests_to("POST", TOKEN)
    assert request.body["code"] == "the-code" and request.body["redirect_uri"] == seen["redirect_uri"]
    assert browser_login._challenge(request.body["code_verifier"]) == seen["code_challenge"]
    assert seen["code_challenge_method"] == "S256" and seen["redirect_uri"].startswith("http://127.0.0.1:")
    assert request.body["code_verifier"] not in result.err and "authorization" not in request.headers
    assert console.load_contexts().contexts["test"].session == "test"
    assert "key-1" not in console.contexts_file.read_text()
    path = session_file(console)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["refresh"] == "refresh-1"
    assert not console.fake.requests_to("GET", f"{M}/ownedaccesskeys/alice-key")  # its expiry is that of the session
    assert console.run("whoami").code == 0
    assert console.fake.requests_to("POST", f"{M}/selves")[-1].headers["authorization"] == "Bearer key-1"


def test_a_code_with_another_state_or_path_is_ignored(console: CliFixture) -> None:
    def attack_then_agree(query: dict[str, str]) -> list[str]:
        uri, state = query["redirect_uri"], query["state"]
        origin = uri.rpartition("/")[0]
        return [
            f"{uri}?code=evil&state=wrong",
            f"{uri}?code=evil",
            f"{uri}?code=evil&state={state}&state=x",
            f"{origin}/?code=evil&state={state}",
            f"{origin}/favicon.ico",
            f"{uri}?code=good&state={state}",
        ]

    use_browser(console, attack_then_agree)
    assert log_in(console).code == 0
    assert [each.body["code"] for each in console.fake.requests_to("POST", TOKEN)] == ["good"]


def test_a_login_that_is_denied_in_the_browser_stores_nothing(console: CliFixture) -> None:
    use_browser(console, lambda query: [f"{query['redirect_uri']}?error=access_denied&state={query['state']}"])
    result = log_in(console)
    assert result.code == 1 and "denied" in result.err
    assert not console.contexts_file.exists() and not console.fake.requests_to("POST", TOKEN)


def test_the_public_address_of_the_console_is_used(console: CliFixture) -> None:
    public = {"enabled": True, "url": "https://fairlead.example.com"}
    console.fake.on("GET", METHODS, (200, {"methods": {"cli": public}}))
    use_browser(console, lambda query: [f"{query['redirect_uri']}?error=access_denied&state={query['state']}"])
    assert "https://fairlead.example.com/console/authorize?" in log_in(console).err


def start_device(cli: CliFixture) -> None:
    reply = {"device_code": "device", "user_code": "BCDF-GHJK", "interval": 5, "expires_in": 600}
    cli.fake.on("POST", DEVICE, (200, {**reply, "verification_uri": "https://elsewhere.example"}))


def test_a_login_with_a_code_waits_for_the_user(console: CliFixture) -> None:
    start_device(console)
    waits: list[float] = []
    console.patches.setattr(browser_login.log_in_with_code, "__defaults__", (waits.append,))
    pending = rejection("authorization_pending")
    console.fake.on("POST", TOKEN, pending, rejection("slow_down"), pending, tokens(1))
    result = log_in(console, "--device")
    assert result.code == 0, result.err
    assert f"Open {console.fake.url}/console/device in a browser and type this code: BCDF-GHJK" in result.err
    assert waits == [5, 5, 10, 10]
    assert json.loads(session_file(console).read_text())["key"] == "key-1"


@pytest.mark.parametrize("error", ["access_denied", "expired_token"])
def test_a_login_with_a_code_that_is_not_allowed_stores_nothing(console: CliFixture, error: str) -> None:
    start_device(console)
    console.patches.setattr(browser_login.log_in_with_code, "__defaults__", (lambda seconds: None,))
    console.fake.on("POST", TOKEN, rejection(error))
    result = log_in(console, "--device")
    assert result.code == 1 and f"not allowed: {error}" in result.err and not console.contexts_file.exists()


def test_without_a_browser_a_code_is_shown(console: CliFixture) -> None:
    start_device(console)
    console.use_terminal()
    console.patches.setattr("fairlead.cli.access.login.has_browser", lambda: False)
    console.patches.setattr(browser_login.log_in_with_code, "__defaults__", (lambda seconds: None,))
    assert "BCDF-GHJK" in log_in(console).err


@pytest.mark.parametrize(
    "methods", [(404, {}), (200, {"methods": {}}), (200, {"methods": {"cli": {"enabled": False}}})]
)
def test_a_server_without_the_console_is_logged_in_to_with_a_key(console: CliFixture, methods: Any) -> None:
    console.fake.on("GET", METHODS, methods)
    console.use_terminal("fairlead_typed")
    assert log_in(console).code == 0
    assert console.load_contexts().contexts["test"].key == "fairlead_typed"
    result = log_in(console, "--device")
    assert result.code == 1 and "does not support --device" in result.err


def test_a_key_can_still_be_typed(console: CliFixture) -> None:
    console.use_terminal("fairlead_typed")
    assert log_in(console, "--key-prompt").code == 0
    assert console.load_contexts().contexts["test"] == Login(
        console.fake.url, "fairlead_typed", Path(console.fake.ca_file).read_text()
    )
    assert log_in(console, "--key-prompt", "--device").code == 2


def test_without_a_terminal_nothing_is_opened(console: CliFixture) -> None:
    result = log_in(console)
    assert result.code == 2 and "use --device" in result.err


def test_a_login_that_is_replaced_is_revoked(console: CliFixture) -> None:
    save_session(console, age=0)
    start_device(console)
    console.patches.setattr(browser_login.log_in_with_code, "__defaults__", (lambda seconds: None,))
    console.fake.on("POST", TOKEN, tokens(2))
    assert log_in(console, "--device").code == 0
    assert [each.body["token"] for each in console.fake.requests_to("POST", REVOKE)] == ["refresh-1"]
    assert json.loads(session_file(console).read_text())["key"] == "key-2"
    console.use_terminal("fairlead_typed")
    assert log_in(console, "--key-prompt").code == 0
    assert [each.body["token"] for each in console.fake.requests_to("POST", REVOKE)] == ["refresh-1", "refresh-2"]
    assert not session_file(console).exists()


def test_a_command_refreshes_the_key_before_it_expires(console: CliFixture) -> None:
    save_session(console, age=541)
    console.fake.on("POST", TOKEN, tokens(2))
    assert console.run("whoami").code == 0
    (request,) = console.fake.requests_to("POST", TOKEN)
    assert request.body == {"grant_type": "refresh_token", "refresh_token": "refresh-1", "client_id": "fairlead-cli"}
    assert console.fake.requests_to("POST", f"{M}/selves")[-1].headers["authorization"] == "Bearer key-2"
    assert console.run("whoami").code == 0
    assert len(console.fake.requests_to("POST", TOKEN)) == 1


def test_a_fresh_key_is_not_refreshed(console: CliFixture) -> None:
    save_session(console, age=530)
    assert console.run("whoami").code == 0 and not console.fake.requests_to("POST", TOKEN)


def test_a_key_from_the_future_is_refreshed(console: CliFixture) -> None:
    save_session(console, age=-3600)  # the clock was set back
    console.fake.on("POST", TOKEN, tokens(2))
    assert console.run("token", "--plain").out == "key-2\n"


def test_a_login_that_has_ended_says_what_to_run(console: CliFixture) -> None:
    save_session(console, age=700)
    console.fake.on("POST", TOKEN, rejection("invalid_grant"))
    address = console.fake.url.removeprefix("https://")
    for command in (("whoami",), ("credential", "--context", "test")):
        result = console.run(*command)
        assert (result.code, result.out) == (1, "")
        assert f"the login 'test' has ended; log in again with `fairlead login {address} --name test`" in result.err


def test_the_key_is_used_while_it_is_valid_if_the_server_cannot_be_reached(console: CliFixture) -> None:
    save_session(console, age=550)
    login = console.load_contexts().contexts["test"]
    unreachable = Login("https://127.0.0.1:1", "", login.authority, session="test")
    save_contexts(console.contexts_file, console.load_contexts().with_login("test", unreachable))
    path = session_file(console)
    path.write_text(path.read_text().replace(console.fake.url, unreachable.url))
    assert console.run("token", "--plain").out == "key-1\n"
    save_session(console, age=601)
    save_contexts(console.contexts_file, console.load_contexts().with_login("test", unreachable))
    path.write_text(path.read_text().replace(console.fake.url, unreachable.url))
    assert console.run("token", "--plain").code == 1


def test_a_key_is_never_sent_to_another_server(console: CliFixture) -> None:
    save_session(console, age=0)
    path = session_file(console)
    path.write_text(path.read_text().replace(console.fake.url, "https://other.example"))
    result = console.run("whoami")
    assert result.code == 1 and "not complete" in result.err and not console.fake.requests


def test_the_credential_for_kubectl_expires_a_minute_early(console: CliFixture) -> None:
    save_session(console, age=100)
    out = json.loads(console.run("credential", "--context", "test").out)
    assert out["apiVersion"] == "client.authentication.k8s.io/v1" and out["status"]["token"] == "key-1"
    expiry = time.strptime(out["status"]["expirationTimestamp"], "%Y-%m-%dT%H:%M:%SZ")
    assert abs(calendar.timegm(expiry) - (time.time() + 440)) < 60
    info = json.dumps({"apiVersion": "client.authentication.k8s.io/v1beta1"})
    again = json.loads(console.run("credential", KUBERNETES_EXEC_INFO=info).out)
    assert again["apiVersion"] == "client.authentication.k8s.io/v1beta1"


def test_the_credential_of_a_login_with_a_key_does_not_expire(cli: CliFixture) -> None:
    cli.save_login()
    assert json.loads(cli.run("credential").out)["status"] == {"token": "fairlead_a-key"}


def run_plugin(cli: CliFixture, name: str = "test") -> subprocess.CompletedProcess[str]:
    variables = {"HOME": str(cli.home), "XDG_CONFIG_HOME": str(cli.home / "config"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "fairlead", "credential", "--context", name]
    return subprocess.run(command, capture_output=True, text=True, env=variables, stdin=subprocess.DEVNULL, check=False)


def test_no_credential_is_printed_for_another_server(console: CliFixture, capsys: pytest.CaptureFixture[str]) -> None:
    save_session(console, age=0)
    arguments = ["credential", "--context", "test", "--server"]
    environment = {"XDG_CONFIG_HOME": str(console.home / "config")}
    assert serve_fresh_credential([*arguments, console.fake.url], environment)
    assert json.loads(capsys.readouterr().out)["status"]["token"] == "key-1"
    assert json.loads(console.run(*arguments, console.fake.url).out)["status"]["token"] == "key-1"
    for other in ("https://other.example", ""):
        assert not serve_fresh_credential([*arguments, other], environment)
        result = console.run(*arguments, other)
        assert result.code == 1 and not result.out
        assert f"but the login is for {console.fake.url}; run `fairlead kubeconfig`" in result.err


def test_twenty_plugins_at_once_refresh_once(console: CliFixture) -> None:
    save_session(console, age=700)
    served = threading.Lock()

    def refresh(request: Request) -> tuple[int, Any]:
        if not served.acquire(blocking=False):
            return rejection("invalid_grant")
        return tokens(2)

    console.fake.on("POST", TOKEN, refresh)
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: run_plugin(console), range(20)))
    assert [each.stderr for each in results] == [""] * 20
    assert {json.loads(each.stdout)["status"]["token"] for each in results} == {"key-2"}
    assert len(console.fake.requests_to("POST", TOKEN)) == 1


def test_a_fresh_key_is_served_without_the_command_line(console: CliFixture) -> None:
    save_session(console, age=0)
    code = (
        "import sys; sys.argv = ['fairlead', 'credential', '--context', 'test'];"
        "from fairlead.__main__ import main; main();"
        "heavy = {'typer', 'httpx', 'yaml', 'msgspec', 'ssl', 'fairlead.cli', 'fairlead.client'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    variables = {"XDG_CONFIG_HOME": str(console.home / "config"), "PATH": os.environ["PATH"]}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["status"]["token"] == "key-1"


def test_names_of_logins_cannot_leave_their_folder(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    names = ["a", "../a", "a/b", "..", ".", "", "a b", "ä", "%2e"]
    paths = [session_path(name, environment) for name in names]
    assert {each.parent for each in paths} == {tmp_path / "fairlead" / "logins"}
    assert len(set(paths)) == len(paths)


def test_logging_out_ends_the_login_on_the_server_and_deletes_its_files(console: CliFixture) -> None:
    save_session(console, age=700)
    result = console.run("logout")
    assert result.code == 0 and "has ended on the server" in result.err
    assert [each.body["token"] for each in console.fake.requests_to("POST", REVOKE)] == ["refresh-1"]
    assert not session_file(console).exists() and not console.load_contexts().contexts


def test_forgetting_a_login_deletes_its_files(console: CliFixture) -> None:
    save_session(console, age=0)
    assert console.run("context", "forget", "test", "--yes").code == 0
    assert not session_file(console).exists()


def test_a_kubeconfig_of_such_a_login_holds_no_secret(console: CliFixture) -> None:
    save_session(console, age=0)
    out = console.run("kubeconfig", "-o", "-").out
    assert "key-1" not in out and "refresh-1" not in out
    plugin = yaml.safe_load(out)["users"][0]["user"]["exec"]
    assert plugin["args"][-5:] == ["credential", "--context", "test", "--server", console.fake.url]
    assert (plugin["apiVersion"], plugin["interactiveMode"]) == ("client.authentication.k8s.io/v1", "IfAvailable")
    result = console.run("kubeconfig", "--embed", "-o", "-")
    assert result.code == 2 and "cannot be embedded" in result.err and not result.out
