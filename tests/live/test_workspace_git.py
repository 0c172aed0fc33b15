"""A day with git in a workspace whose image has no sshd: a real ssh client, agent, server, runner, container and Git
server with TLS and a login."""

import os
import socket
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.grant import CONTAINER
from tests.harness.eventually import wait_until
from tests.live.ssh_user import WAIT_SECONDS, SshUser, get_state, host_of, start_workspace, user
from tests.live.workspace_setup import M
from tests.runner.harness.git_server import GitServer, running_git_server

__all__ = ["user"]
NAME = "coding"
TOKEN = "canary-of-a-stored-token"
SECRETS = f"{M}/namespaces/service-p-web/projectsecrets"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def git_server(user: SshUser) -> Iterator[GitServer]:
    with running_git_server(user.containers.number, user.containers.folder / "git", f"ada:{TOKEN}") as server:
        server.create("shop.git")
        yield server


@pytest.fixture
def host(user: SshUser, git_server: GitServer) -> str:
    """A workspace of a user with an address, who has stored a token."""
    profile = {"spec": {"displayName": "Ada Lovelace", "email": "ada@example.com"}}
    assert user.admin.patch(f"{M}/users/admin", json=profile, headers=MERGE).is_success
    body = {
        "apiVersion": "management.service.sh/v1",
        "kind": "ProjectSecret",
        "metadata": {"name": "token", "annotations": {"service.sh/git-host": git_server.host}},
        "spec": {
            "owner": {"user": "admin"},
            "data": {"username": b64encode(b"ada").decode(), "password": b64encode(TOKEN.encode()).decode()},
        },
    }
    created = user.admin.post(SECRETS, json=body)
    assert created.status_code == 201, created.text
    source = f"git:file://{user.containers.repositories}/demo"
    uid = start_workspace(user.admin, NAME, source, owner="admin")
    wait_until(lambda: get_state(user.admin, NAME) == "Running", WAIT_SECONDS, what="it runs")
    user.uids[NAME] = uid
    user.containers.podman(uid, "exec", "--user=root", CONTAINER, "rm", "/usr/sbin/sshd")
    assert user.fairlead("ssh-config", "--write").returncode == 0
    saved = user.run("ssh", host_of(NAME), "cat >ca.pem", input=git_server.certificate.encode())
    assert saved.returncode == 0, saved.stderr
    return host_of(NAME)


@contextmanager
def running_agent(folder: Path) -> Iterator[dict[str, str]]:
    """A real agent with one key, and the environment that names it. Its public key is in the file `key.pub`."""
    variables = {"SSH_AUTH_SOCK": str(folder / "agent")}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    with subprocess.Popen(["ssh-agent", "-D", "-a", variables["SSH_AUTH_SOCK"]], stdout=subprocess.DEVNULL) as agent:
        try:
            wait_until(Path(variables["SSH_AUTH_SOCK"]).exists, what="the agent listens")
            subprocess.run(["ssh-add", "-q", str(folder / "key")], env={**os.environ, **variables}, check=True)
            yield variables
        finally:
            agent.terminate()


SIGN_AND_PUSH = """
set -e
export GIT_SSL_CAINFO=$HOME/ca.pem GIT_TERMINAL_PROMPT=0
cat >key.pub
git clone -q {url} shop
cd shop
git -c gpg.format=ssh -c user.signingkey=$HOME/key.pub commit -q -S --allow-empty -m Signed
git push -q origin HEAD:main
"""
PUSH_AGAIN = """
export GIT_SSL_CAINFO=$HOME/ca.pem GIT_TERMINAL_PROMPT=0
cd shop && git commit -q --allow-empty -m Later && git push -q origin HEAD:main
"""


@pytest.mark.timeout(300)
def test_commits_are_signed_by_the_forwarded_agent_and_pushed_with_a_stored_token(
    user: SshUser, git_server: GitServer, host: str, tmp_path: Path
) -> None:
    with running_agent(tmp_path) as variables:
        config = ("-o", f"IdentityAgent={variables['SSH_AUTH_SOCK']}", "-A")
        public_key = (tmp_path / "key.pub").read_bytes()
        pushed = user.run("ssh", *config, host, SIGN_AND_PUSH.format(url=git_server.url("shop.git")), input=public_key)
        assert pushed.returncode == 0, pushed.stderr
    signers = tmp_path / "signers"
    signers.write_text(f"ada@example.com {public_key.decode()}")
    verified = git_server.run("shop.git", "-c", f"gpg.ssh.allowedSignersFile={signers}", "verify-commit", "main")
    assert b"Good" in verified.stderr and b"ada@example.com" in verified.stderr
    assert git_server.log("shop.git", "%an <%ae>") == "Ada Lovelace <ada@example.com>\n"

    folders = ("/ws", "/var", "/private", "/workspaces")
    assert user.containers.run(user.uids[NAME], "grep", "-rlsF", TOKEN, *folders, check=False) == ""
    audit = "".join(path.read_text() for path in (user.home.parent / "data").rglob("audit*.log"))
    assert f'"service.sh/git-use":"https://{git_server.host}"' in audit.replace('": "', '":"')
    assert TOKEN not in audit

    assert user.admin.delete(f"{SECRETS}/token").is_success
    refused = user.run("ssh", host, PUSH_AGAIN)
    assert refused.returncode != 0 and b"could not read Username" in refused.stderr
    check_reverse_port(user, host)


def check_reverse_port(user: SshUser, host: str) -> None:
    """`ssh -R`: a program in the workspace connects to one of the user's machine."""
    script = 'import socket; s = socket.create_connection(("127.0.0.1", 18123)); print(s.recv(9).decode())'
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"18123:127.0.0.1:{server.getsockname()[1]}"
        client = user.start("ssh", "-o", "ExitOnForwardFailure=yes", "-R", target, host, f"python3 -c '{script}'")
        server.settimeout(WAIT_SECONDS)
        connected, _ = server.accept()
        with connected:
            connected.sendall(b"from home")
        output, errors = client.communicate(timeout=WAIT_SECONDS)
    assert output == b"from home\n", errors
