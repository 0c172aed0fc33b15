"""Where the home folder of a workspace's user is, as its image says."""

from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.inside import home

WORK = "/workspaces/demo"
PASSWD = "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\nodd:x:7:7::/proc/odd:/bin/sh\n"
RUN = ("--sig-proxy=false", "-a", "STDOUT", "--mount", f"type=bind,source={WORK},target={WORK}", "-l", "a=b", "--init")


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program that answers as podman does about an image of the user `dev`."""
    (tmp_path / "image/etc").mkdir(parents=True)
    (tmp_path / "image/etc/passwd").write_text(PASSWD)
    program = tmp_path / "podman"
    answers = {"image IMAGE": "dev:dev\n", "create IMAGE": "c1\n", "mount c1": f"{tmp_path}/image\n", "rm c1": "c1\n"}
    program.write_text(
        "#!/usr/bin/env python3\nimport sys\n"
        f"answer = {answers!r}.get(f'{{sys.argv[1]}} {{sys.argv[-1]}}')\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write(sys.argv[1] + ' ')\n"
        "sys.exit(125) if answer is None else sys.stdout.write(answer)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(home, "USER", str(tmp_path / "user"))
    return str(program)


def describe(podman: str, user: str = "") -> tuple[list[str], str, list[str]]:
    if user:
        Path(home.USER).write_text(user)
    notes: list[str] = []
    options, path = home.describe_home(podman, [*RUN, "IMAGE", "-c", "x"], WORK, notes.append)
    return options, path, notes


@pytest.mark.parametrize(("user", "path"), [("", "/home/dev"), ("root", "/root"), ("1000:1000", "/home/dev")])
def test_the_home_is_that_of_the_user_of_the_configuration_or_else_of_the_image(
    podman: str, user: str, path: str
) -> None:
    assert describe(podman, user) == ([f"--mount=type=volume,source=fairlead-home,target={path}"], path, [])
    assert (Path(podman).parent / "calls").read_text().split()[-3:] == ["create", "mount", "rm"]


def test_a_user_without_a_home_has_none_that_is_kept_and_it_is_said(podman: str) -> None:
    options, path, notes = describe(podman, "nobody")
    assert (options, path) == ([], "") and "does not say where nobody has one" in notes[0]


@pytest.mark.parametrize("user", ["odd", "above", "slash", "comma", "relative"])
def test_a_home_where_no_volume_can_be_is_not_kept(podman: str, user: str) -> None:
    homes = {"above": "/workspaces", "slash": "/", "comma": "/a,readonly", "relative": "home"}
    passwd = Path(podman).parent / "image/etc/passwd"
    passwd.write_text(PASSWD + "".join(f"{name}:x:9:9::{each}:/bin/sh\n" for name, each in homes.items()))
    options, path, notes = describe(podman, user)
    assert (options, path) == ([], "") and "a volume cannot be at" in notes[0]


def test_a_list_of_users_that_is_a_link_is_not_read(podman: str, tmp_path: Path) -> None:
    passwd = Path(podman).parent / "image/etc/passwd"
    passwd.rename(tmp_path / "elsewhere")
    passwd.symlink_to(tmp_path / "elsewhere")
    assert describe(podman)[:2] == ([], "")
