"""What the SSH of a runner is made of: host keys, what an image has, and the configuration of its sshd."""

from pathlib import Path
from typing import cast

import pytest

from fairlead.core.crypto.ssh_certificates import find_public_key
from fairlead.core.files import FileProblem
from fairlead.runner.engines.contract import Engine
from fairlead.runner.ssh.host_keys import SECRET_FILE, HostKeys
from fairlead.runner.ssh.image_sshd import MAX_ENVIRONMENT_BYTES, build_config
from fairlead.runner.ssh.inside import Inside, find_inside, parse_probe
from tests.runner.ssh.local_engine import LocalEngine


def test_each_workspace_has_a_host_key_of_its_own_that_survives_the_runner(tmp_path: Path) -> None:
    first = HostKeys(tmp_path).get("a")
    again = HostKeys(tmp_path)
    assert again.get("a").public == first.public
    assert again.get("b").public != first.public
    assert find_public_key(first.private.decode()) == first.public
    assert (tmp_path / SECRET_FILE).stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in repr(first)


def test_a_damaged_secret_is_reported(tmp_path: Path) -> None:
    (tmp_path / SECRET_FILE).write_bytes(b"x")
    with pytest.raises(FileProblem):
        HostKeys(tmp_path).get("a")


async def test_a_real_shell_says_what_a_machine_has() -> None:
    inside = await find_inside(cast(Engine, LocalEngine()), "uid-of-parts")
    assert inside.user
    assert inside.shell.startswith("/")
    assert inside.environment["GREETING"] == "hello"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"", Inside()),
        (b"dev\0/bin/zsh\0/home/dev\0\0\0A=1\0", Inside("dev", "/home/dev", "/bin/zsh", environment={"A": "1"})),
        (b"-oX\0\0\0/usr/sbin/sshd\0\0", Inside(sshd="/usr/sbin/sshd")),
        (b"a b\nc\0\0", Inside()),
    ],
)
def test_what_an_image_says_is_not_trusted(output: bytes, expected: Inside) -> None:
    assert parse_probe(output) == expected


def test_variables_of_the_container_reach_sessions_unless_they_could_break_the_configuration() -> None:
    variables = {
        "PATH": "/opt/tools/bin:/usr/bin",
        "GREETING": "hello world",
        "QUOTED": 'a "b"',
        "ESCAPED": "a\\",
        "LINES": "a\nPermitRootLogin yes",
        "HOME": "/root",
        "SSH_AUTH_SOCK": "/x",
        "bad name": "x",
        "HUGE": "x" * MAX_ENVIRONMENT_BYTES,
    }
    lines = build_config("dev", variables).splitlines()
    assert lines[-1] == 'SetEnv "PATH=/opt/tools/bin:/usr/bin" "GREETING=hello world"'
    assert "AllowUsers dev" in lines
    assert "AuthorizedKeysFile none" in lines
    assert "PasswordAuthentication no" in lines
