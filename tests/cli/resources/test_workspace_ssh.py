"""fairlead.cli.resources.workspace_ssh and workspace_ports: what they write, and what they do not accept."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.resources.ssh_files import Place, include_config
from fairlead.cli.resources.workspace_ports import Forward, parse_forward
from fairlead.cli.ui.session import UsageError
from fairlead.client.workspace_streams import decode_exit_code
from fairlead.core.crypto.ssh_certificates import find_public_key, generate_private_key
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object

WORKSPACES = f"{M}/namespaces/service-p-demo/devpodworkspaceinstances"
CERTIFICATE = f"{WORKSPACES}/desk/sshcertificate"
HOST_KEY = find_public_key(generate_private_key())
STATUS = {"certificate": "ssh-ed25519-cert-v01@openssh.com AAAA", "hostKeys": [HOST_KEY], "user": "dev"}
PREPARE = ("workspace", "ssh-prepare", "desk", "--project", "demo")


def build_workspace(name: str, namespace: str = "service-p-demo") -> dict[str, Any]:
    workspace = build_object(name, kind="DevPodWorkspaceInstance")
    workspace["metadata"]["namespace"] = namespace
    return workspace


@pytest.fixture
def folder(user: CliFixture) -> Path:
    return user.home / "config/fairlead/ssh"


@pytest.fixture
def ada(user: CliFixture, folder: Path) -> CliFixture:
    found = [build_workspace("desk"), build_workspace("a.b"), build_workspace("other", "elsewhere")]
    user.fake.on("GET", f"{M}/devpodworkspaceinstances", (200, {"items": found, "metadata": {}}))
    user.fake.on("POST", CERTIFICATE, (201, {"status": STATUS}))
    return user


def ask_ssh(config: Path, host: str) -> dict[str, str]:
    """What a real ssh makes of a configuration."""
    output = subprocess.check_output(["ssh", "-G", "-F", str(config), host], text=True)
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def test_a_real_ssh_understands_the_configuration(ada: CliFixture, folder: Path) -> None:
    home = ada.home
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/config").write_text("Host *\n    ForwardAgent yes\n    User someone\n")
    assert ada.run("workspace", "ssh-config", "--write").code == 0
    assert ada.run("workspace", "ssh-config", "--write").code == 0
    text = (home / ".ssh/config").read_text()
    assert text == f'Include "{folder}/config"\n\nHost *\n    ForwardAgent yes\n    User someone\n'
    assert "elsewhere" not in (folder / "config").read_text()
    # The command that fetches the certificate cannot reach the fake server, so that the condition does not hold.
    found = ask_ssh(folder / "config", "desk.demo.fairlead")
    assert found["certificatefile"] == f"{folder}/desk.demo.fairlead-cert.pub"
    assert found["userknownhostsfile"] == f"{folder}/desk.demo.fairlead.known_hosts"
    assert (found["stricthostkeychecking"], found["forwardagent"], found["identitiesonly"]) == ("true", "no", "yes")
    assert "workspace ssh-proxy desk --project demo" in found["proxycommand"]
    assert "workspace ssh-proxy a.b --project demo" in ask_ssh(folder / "config", "a.b.demo.fairlead")["proxycommand"]
    assert "proxycommand" not in ask_ssh(folder / "config", "x.demo.fairlead")


def test_preparing_writes_private_files_and_reuses_the_key(ada: CliFixture, folder: Path) -> None:
    assert ada.run(*PREPARE).code == 0
    assert ada.run(*PREPARE).code == 0
    first, second = (each.body["spec"]["publicKey"] for each in ada.fake.requests_to("POST", CERTIFICATE))
    assert first == second == find_public_key((folder / "id_ed25519").read_text())
    assert (folder / "desk.demo.fairlead.known_hosts").read_text() == f"desk.demo.fairlead {HOST_KEY}\n"
    assert (folder / "desk.demo.fairlead.user").read_text() == "User dev\n"
    assert (folder / "desk.demo.fairlead-cert.pub").read_text() == f"{STATUS['certificate']}\n"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert len(os.listdir(folder)) == 4


def test_the_configuration_names_the_namespace_so_that_connections_need_not_ask_for_it(
    ada: CliFixture, folder: Path
) -> None:
    text = ada.run("workspace", "ssh-config").out
    assert text.count("desk --project demo --namespace service-p-demo") == 2
    before = len(ada.fake.requests)
    assert ada.run(*PREPARE, "--namespace", "service-p-demo").code == 0
    assert [each.path for each in ada.fake.requests[before:]] == [CERTIFICATE]


def test_a_namespace_that_could_be_another_line_is_left_out() -> None:
    for namespace in ("x\nProxyCommand y", "x y", '"', "%h", ""):
        command = Place("desk", "demo", None, namespace).command("ssh-proxy")
        assert command.endswith("workspace ssh-proxy desk --project demo")


@pytest.mark.parametrize(
    "change",
    [
        {"user": "-oProxyCommand=touch /tmp/x"},
        {"user": "dev\nProxyCommand touch /tmp/x"},
        {"hostKeys": [f"{HOST_KEY}\n* {HOST_KEY}"]},
        {"hostKeys": [5]},
        {"certificate": "x y\nz"},
        {"certificate": None},
    ],
)
def test_a_response_that_ssh_could_misunderstand_is_an_error(
    ada: CliFixture, folder: Path, change: dict[str, Any]
) -> None:
    ada.fake.on("POST", CERTIFICATE, (201, {"status": {**STATUS, **change}}))
    result = ada.run(*PREPARE)
    assert (result.code, "is it a Fairlead server?" in result.err) == (1, True)
    assert not (folder / "desk.demo.fairlead.user").exists()


def test_names_that_are_no_hosts_are_rejected(ada: CliFixture) -> None:
    for name in ("-x", "a b", "a;b", "A", "$(x)"):
        result = ada.run("workspace", "ssh-prepare", "--project", "demo", "--", name)
        assert (result.code, "is not a workspace" in result.err) == (1, True)
    assert ada.fake.requests_to("POST", CERTIFICATE) == []


def test_a_configuration_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target, config = tmp_path / "dotfiles/config", tmp_path / "config"
    config.symlink_to(target)
    assert include_config(config, Path("/own"))
    assert not include_config(config, Path("/own"))
    assert config.is_symlink()
    assert target.read_text() == 'Include "/own"\n'


def test_ports_are_listed(ada: CliFixture) -> None:
    ports = [{"port": 8080, "address": "0.0.0.0", "process": "node"}]
    ada.fake.on("GET", f"{WORKSPACES}/desk/ports", (200, {"ports": ports}))
    result = ada.run("workspace", "ports", "desk", "--project", "demo")
    assert [line.split() for line in result.out.splitlines()] == [
        ["PORT", "ADDRESS", "PROCESS"],
        ["8080", "0.0.0.0", "node"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("8080:80", Forward(8080, 80)), ("80", Forward(80, 80)), ("0:80", Forward(0, 80))]
)
def test_a_forward_is_parsed(text: str, expected: Forward) -> None:
    assert parse_forward(text) == expected


@pytest.mark.parametrize("text", ["", "x", "80:", ":80", "80:0", "70000", "1:2:3", "-1:80"])
def test_what_is_not_a_forward_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_forward(text)


@pytest.mark.parametrize(("content", "code"), [(b"\x00", 0), (b"\x0e", 7), (b"\x05", -3), (b"\x96\x01", 75)])
def test_exit_codes_are_decoded(content: bytes, code: int) -> None:
    assert decode_exit_code(content) == code
