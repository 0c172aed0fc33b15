"""Logins of the command line against a real server: in a browser and with a code, and kubectl with the exec plugin.

Keys last seconds here, so that kubectl needs several of them.
"""

import json
import os
import pty
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import ROOT, TIMEOUT_SECONDS, Server, running_server

KEY_SECONDS = 15
PASSWORD = "correct horse battery staple"
USERS = "/kubernetes/management/apis/management.service.sh/v1/users"


@dataclass(frozen=True, slots=True)
class Workstation:
    """A user with a home folder, and a browser in which she is signed in."""

    server: Server
    home: Path
    browser: httpx.Client

    def environment(self, **variables: str) -> dict[str, str]:
        path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        return {**path, "HOME": str(self.home), "LANG": "C.UTF-8", **variables}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fairlead", *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def log_in_arguments(self) -> tuple[str, ...]:
        address = self.server.url.removeprefix("https://")
        return "login", address, "--ca-file", self.server.ca_file, "--name", "test"

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.browser.post(path, json=body, headers={"Origin": self.server.url})

    def session(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.session_file.read_text())
        return content

    @property
    def session_file(self) -> Path:
        return self.home / ".config" / "fairlead" / "logins" / "login-test.json"

    def log_in_with_code(self) -> None:
        process = subprocess.Popen(
            self.command(*self.log_in_arguments(), "--device"),
            cwd=ROOT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"type this code: ([A-Z]{4}-[A-Z]{4})$", line.strip())
        assert found is not None, line
        shown = self.post("/auth/device/request", {"userCode": found[1]})
        assert shown.status_code == 200 and shown.json()["address"] == "127.0.0.1", shown.text
        assert self.post("/auth/device/decision", {"userCode": found[1], "approve": True}).status_code == 200
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0 and "logged in" in errors, errors


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("cli-login") / "data"
    with running_server(folder, cli_key_ttl=KEY_SECONDS) as running:
        with running.client() as admin:
            body = {"apiVersion": "management.service.sh/v1", "kind": "User", "metadata": {"name": "alice"}}
            spec = {"groups": ["system:masters"]}
            assert admin.post(USERS, json={**body, "spec": spec}).status_code == 201
            assert admin.post(f"{USERS}/alice/profile", json={"password": PASSWORD}).status_code < 300
        yield running


@pytest.fixture
def station(server: Server, tmp_path: Path) -> Iterator[Workstation]:
    with server.client(None) as browser:
        headers = {"Origin": server.url}
        credentials = {"username": "alice", "password": PASSWORD}
        reply = browser.post("/auth/password/login", params={"cookie": "true"}, json=credentials, headers=headers)
        assert reply.status_code == 200, reply.text
        yield Workstation(server, tmp_path, browser)


def kubectl_for(station: Workstation, program: Path) -> Kubectl:
    kubeconfig = station.home / "kubeconfig"
    written = station.run("kubeconfig", "-o", str(kubeconfig))
    assert written.returncode == 0, written.stderr
    text = kubeconfig.read_text()
    assert station.session()["key"] not in text and station.session()["refresh"] not in text
    return Kubectl(program, kubeconfig, station.home, station.environment())


def run_kubectl(kubectl: Kubectl, station: Workstation) -> "subprocess.CompletedProcess[str]":
    """A request of kubectl without a terminal, and without a time limit: it may wait for others that refresh."""
    command = [str(kubectl.program), "--kubeconfig", str(kubectl.kubeconfig), "get", "--raw", "/api"]
    return subprocess.run(
        command, env=station.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(600)
@pytest.mark.long
def test_kubectl_works_across_many_refreshes_without_a_prompt(
    station: Workstation, component: Callable[[str], Path]
) -> None:
    station.log_in_with_code()
    assert stat.S_IMODE(station.session_file.stat().st_mode) == 0o600
    kubectl = kubectl_for(station, component("kubectl"))
    seen: set[str] = set()
    deadline = time.monotonic() + 300
    while len(seen) < 5 and time.monotonic() < deadline:
        done = run_kubectl(kubectl, station)
        assert done.returncode == 0 and "APIVersions" in done.stdout, done.stderr
        seen.add(station.session()["refresh"])
        time.sleep(1)
    assert len(seen) == 5  # each refresh replaces the token
    assert station.run("logout").returncode == 0
    assert not station.session_file.exists()


@pytest.mark.timeout(600)
def test_parallel_kubectl_processes_share_a_refresh(station: Workstation, component: Callable[[str], Path]) -> None:
    station.log_in_with_code()
    kubectl = kubectl_for(station, component("kubectl"))
    before = station.session()["issued"]
    wait_until(lambda: time.time() > before + KEY_SECONDS, what="the key expires")
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: run_kubectl(kubectl, station), range(20)))
    assert [each.returncode for each in results] == [0] * 20, [each.stderr for each in results]
    assert station.run("whoami").returncode == 0


def test_kubectl_says_what_to_run_when_the_login_has_ended(
    station: Workstation, component: Callable[[str], Path]
) -> None:
    station.log_in_with_code()
    kubectl = kubectl_for(station, component("kubectl"))
    assert station.post("/auth/logout?all=true", None).status_code == 200
    problem = kubectl.expect_failure("get", "namespaces")
    if "fairlead login" not in problem:  # kubectl has used the key before it was due for a refresh
        wait_until(lambda: time.time() > station.session()["expires"], what="the key expires")
        problem = kubectl.expect_failure("get", "namespaces")
    assert "the login 'test' has ended; log in again with `fairlead login 127.0.0.1:" in problem


@pytest.mark.long
def test_a_stolen_refresh_token_ends_the_login(station: Workstation) -> None:
    station.log_in_with_code()
    stolen = station.session()["refresh"]
    form = {"grant_type": "refresh_token", "refresh_token": stolen}
    with station.server.client(None) as thief:
        reply = thief.post("/auth/token", data=form)
        assert reply.status_code == 200
        assert thief.get("/kubernetes/management/api", headers=_bearer(stolen)).status_code == 401
        following = {**form, "refresh_token": reply.json()["refresh_token"]}
        assert thief.post("/auth/token", data=following).status_code == 200
        time.sleep(31)  # the owner's token is outside of the grace period now
        owner = station.run("whoami")
        assert owner.returncode == 1 and "has ended" in owner.stderr
        assert thief.post("/auth/token", data=following).status_code == 400


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_login_in_the_browser(station: Workstation) -> None:
    """The browser is a script that writes the address into a file; the test does what the console does."""
    opened = station.home / "opened"
    script = station.home / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    script.chmod(0o755)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        station.command(*station.log_in_arguments()),
        cwd=ROOT,
        env=station.environment(BROWSER=f"{script} %s"),
        stdin=child,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(child)
    try:
        wait_until(opened.exists, what="the browser opens")
        page = urlsplit(opened.read_text().strip())
        assert f"{page.scheme}://{page.netloc}{page.path}" == f"{station.server.url}/console/authorize"
        query = {name: values[0] for name, values in parse_qs(page.query).items()}
        shown = station.browser.get("/auth/authorize", params=query)
        assert shown.status_code == 200 and shown.json()["user"] == "alice", shown.text
        cross = station.browser.post(
            "/auth/authorize", json={"approve": True, "request": query}, headers={"Origin": "https://evil.example"}
        )
        assert cross.status_code == 403
        decided = station.post("/auth/authorize", {"approve": True, "request": query})
        assert decided.status_code == 200, decided.text
        assert httpx.get(decided.json()["redirect"], trust_env=False).status_code == 200
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        os.close(parent)
    who = station.run("whoami", "-o", "json")
    assert who.returncode == 0 and json.loads(who.stdout)["user"]["name"] == "alice"
    created = station.run("key", "create", "--name", "from-cli")
    assert created.returncode == 0 or "ttl" in created.stderr, created.stderr
