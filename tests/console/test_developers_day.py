"""A developer's day with one workspace, from end to end: a private repository, git, a program in the browser, a web
IDE, a night's sleep, and a new container. The Git server, ssh, the agent, the runner, the container and the browser are
real; a program is in place of code-server."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from tests.console.browser import Browser, Page
from tests.console.servers import ADMIN, GROUP, LOGIN_COOKIE, ConsoleServer, running_console
from tests.harness.eventually import wait_until
from tests.live.runner_process import running_runner
from tests.live.ssh_user import WAIT_SECONDS, SshUser, host_of
from tests.live.test_workspace_git import running_agent
from tests.runner.harness.git_server import GitServer
from tests.runner.harness.git_ssh_server import create_key, running_git_ssh_server, ssh_url
from tests.runner.harness.podman import IMAGE, open_containers
from tests.runner.harness.real_engine import ENGINE, describe_containers

NAME = "desk"
PORT, IDE_PORT = 8080, 13337
WORKSPACE = f"{GROUP}/namespaces/service-p-web/devpodworkspaceinstances/{NAME}"
SLEEP = "sleepmode.service.sh/force"
SERVE = """
import socket, sys
host, title = sys.argv[1:]
body = f"<!doctype html><title>{title}</title>".encode()
listening = socket.create_server((host.split(":")[0], int(host.split(":")[1])))
while True:
    client = listening.accept()[0]
    request = client.makefile("rb")
    while request.readline().strip():
        pass
    head = ("HTTP/1.1 200 OK", "Content-Type: text/html", f"Content-Length: {len(body)}", "Connection: close", "", "")
    client.sendall("\\r\\n".join(head).encode() + body)
    client.close()
"""
EDITOR = """#!/bin/sh
exec python3 "$7/serve.py" "$4" "editor of $7"
"""
"""In place of code-server, with its options."""
INSTALL = "install -D -m 755 code-server ~/.local/share/fairlead/web-ide/node_modules/.bin/code-server"
CONFIGURATION = {"image": IMAGE, "remoteUser": "dev", "forwardPorts": [PORT], "postCreateCommand": INSTALL}
FILES = {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION), "serve.py": SERVE, "code-server": EDITOR}
TEMPLATE = {"provider": {"name": "devcontainer", "options": {"home": {"value": "keep"}, "webIDE": {"value": "image"}}}}
MORNING = f"""
set -e
cd /workspaces/*/
git switch -q -c feature
echo "print('hello')" >hello.py
git add hello.py && git commit -q -m "A greeting"
git push -q -u origin feature
echo not committed >draft.txt
echo mine >~/notes.txt
setsid python3 serve.py 127.0.0.1:{PORT} 'the shop' >/dev/null 2>&1 </dev/null &
"""
NEXT_DAY = """
set -e
cd /workspaces/*/
git branch --show-current
git status --short
cat ~/notes.txt draft.txt
git add draft.txt && git commit -q -m "A draft"
git push -q
"""


@dataclass(frozen=True, slots=True)
class Day:
    """A developer at the console and in a terminal. `ssh_flags` forward the agent with their key."""

    user: SshUser
    page: Page
    git: GitServer
    ssh_flags: tuple[str, ...]

    def fairlead(self, *arguments: str) -> str:
        done = self.user.fairlead(*arguments)
        assert done.returncode == 0, done.stderr.decode()
        return (done.stdout + done.stderr).decode()

    def ssh(self, script: str) -> str:
        done = self.user.run("ssh", *self.ssh_flags, host_of(NAME), script)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def run_as_root(self, script: str) -> None:
        uid = self.user.admin.get(WORKSPACE).json()["metadata"]["uid"]
        self.user.containers.podman(uid, "exec", "--user=root", CONTAINER, "sh", "-c", script)

    def list_ports(self) -> list[int]:
        return [each["port"] for each in self.user.admin.get(f"{WORKSPACE}/ports").json()["ports"]]

    def open_port(self, port: int, title: str) -> None:
        """As by a click on the port in the console."""
        self.page.goto(f"open-port?project=web&workspace={NAME}&port={port}&path=%2F")
        shown = "document.title"
        self.page.wait_until(lambda: self.page.eval(shown) == title, f"port {port} shows {title}", WAIT_SECONDS)
        host = self.page.eval("location.host")
        assert host.startswith(f"{port}--{NAME}--web--") and ".workspaces.localhost:" in host


def create_objects(console: ConsoleServer, git: GitServer, deploy_key: str) -> None:
    """An address of the user, the key with which the project reads its repository, and a template."""
    profile = {"spec": {"displayName": "Ada Lovelace", "email": "ada@example.com"}}
    console.send("PATCH", f"{GROUP}/users/{ADMIN}", profile, patch=True)
    api = {"apiVersion": "management.service.sh/v1"}
    content = {"ssh-privatekey": deploy_key, "known_hosts": git.certificate}
    secret = {
        **api,
        "kind": "ProjectSecret",
        "metadata": {"name": "deploy-key", "annotations": {"service.sh/git-host": git.host}},
        "spec": {"data": {name: b64encode(text.encode()).decode() for name, text in content.items()}},
    }
    console.create(f"{GROUP}/namespaces/service-p-web/projectsecrets", secret)
    template = {
        **api,
        "kind": "DevPodWorkspaceTemplate",
        "metadata": {"name": "day"},
        "spec": {"template": TEMPLATE},
    }
    console.create(f"{GROUP}/devpodworkspacetemplates", template)


@pytest.fixture
def day(tmp_path: Path, browser: Browser, certificates: Certificates) -> Iterator[Day]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    deploy_key = create_key(tmp_path / "deploy")
    with (
        running_agent(tmp_path) as agent,
        open_containers() as containers,
        running_console(tmp_path / "data", certificates) as console,
        console.server.client() as admin,
        running_runner(console.server, admin, containers.folder / "runner", ENGINE, describe_containers(containers)),
        running_git_ssh_server(
            containers.number, containers.folder / "git", [deploy_key, (tmp_path / "key.pub").read_text().strip()]
        ) as git,
    ):
        git.create("shop.git")
        first = containers.commit("shop", FILES).removeprefix("file://")
        git.run("shop.git", "fetch", "-q", first, "main:main")
        create_objects(console, git, (tmp_path / "deploy").read_text())
        page = browser.new_page(console.url)
        page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
        user = SshUser(console.server, admin, containers, home, {})
        flags = ("-o", f"IdentityAgent={agent['SSH_AUTH_SOCK']}", "-A")
        try:
            yield Day(user, page, git, flags)
        finally:
            page.close_all()


@pytest.mark.timeout(600)
def test_a_day_of_a_developer(day: Day) -> None:
    created = day.fairlead("create", NAME, ssh_url(day.git, "shop.git"), "--project", "web", "--template", "day")
    assert f"the workspace {NAME} is running" in created
    day.fairlead("ssh-config", "--write")
    day.ssh(f"mkdir -p ~/.ssh && echo '{day.git.certificate}' >~/.ssh/known_hosts\n{MORNING}")
    assert day.git.run("shop.git", "log", "-1", "--format=%an <%ae> %s", "feature").stdout.decode() == (
        "Ada Lovelace <ada@example.com> A greeting\n"
    )

    wait_until(lambda: PORT in day.list_ports(), WAIT_SECONDS, what="its port is found")
    assert IDE_PORT in day.list_ports()
    day.open_port(PORT, "the shop")
    day.open_port(IDE_PORT, f"editor of /workspaces/{NAME}")

    day.user.admin.patch(
        WORKSPACE,
        json={"metadata": {"annotations": {SLEEP: "true"}}},
        headers={"Content-Type": "application/merge-patch+json"},
    ).raise_for_status()
    wait_until(lambda: get_status(day) == ("Sleeping", "Stopped"), WAIT_SECONDS, what="it sleeps")
    assert f"the workspace {NAME} is running" in day.fairlead("start", NAME, "--project", "web")

    assert day.ssh(NEXT_DAY).splitlines() == ["feature", "?? draft.txt", "mine", "not committed"]
    assert day.git.run("shop.git", "log", "-2", "--format=%s", "feature").stdout.decode() == "A draft\nA greeting\n"
    day.open_port(IDE_PORT, f"editor of /workspaces/{NAME}")

    day.run_as_root("echo of mine >/opt/tool")
    day.fairlead("up", NAME, "--recreate", "--snapshot", "--project", "web")
    day.run_as_root("! test -e /opt/tool")
    snapshot = day.fairlead("snapshots", NAME, "--project", "web").splitlines()[1].split()[0]
    day.fairlead("restore", NAME, snapshot, "/opt/tool", "--project", "web")
    lasting = "cat /opt/tool ~/notes.txt; cd /workspaces/*/; git log -1 --format=%s"
    assert day.ssh(lasting) == "of mine\nmine\nA draft\n"


def get_status(day: Day) -> tuple[str, str]:
    status = day.user.admin.get(WORKSPACE).json().get("status") or {}
    return status.get("phase") or "", status.get("lastWorkspaceStatus") or ""
