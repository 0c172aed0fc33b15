"""The program in front of podman, with a script in place of podman that notes how it is run."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.devcontainer.inside import builds, shim
from tests.runner.harness.grants import CONTAINER, UID, make_grant

WORK = "/workspaces/demo"
RUN = ["run", "--mount", f"type=bind,source={WORK},target={WORK}", "-l", f"fairlead.workspace={UID}"]


class Replaced(Exception):
    """This process would be another program now."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the shim has in a holder."""

    folder: Path

    @property
    def calls(self) -> list[list[str]]:
        """How podman was run."""
        log = self.folder / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def refusals(self) -> list[dict[str, str]]:
        log = self.folder / "refused"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def answer(self, output: str, code: int = 0) -> None:
        """What podman prints from now on, and its exit code."""
        (self.folder / "answer").write_text(output)
        podman = self.folder / "podman"
        podman.write_text(
            "#!/usr/bin/env python3\nimport json, sys\n"
            f"open({str(self.folder / 'calls')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"sys.stdout.write(open({str(self.folder / 'answer')!r}).read())\nsys.exit({code})\n"
        )
        podman.chmod(0o755)

    def run(self, *arguments: str) -> list[str] | int:
        """The command line that replaces the shim, or its exit code."""
        try:
            return shim.main(arguments)
        except Replaced as replaced:
            return list(replaced.args[0])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    def replace(program: str, arguments: Sequence[str]) -> None:
        raise Replaced(arguments)

    place = Place(tmp_path)
    place.answer("")
    grant = make_grant("mounts", podman=str(tmp_path / "podman"))
    (tmp_path / "shim.json").write_text(grant.describe_to_shim())
    (tmp_path / "private/secrets").mkdir(parents=True)
    (tmp_path / "private/secrets/TOKEN").touch()
    monkeypatch.setattr(os, "execv", replace)
    names = {
        "SETTINGS": "shim.json",
        "CONTAINER_ID": "container.id",
        "OWNED": "owned",
        "REFUSALS": "refused",
        "OMISSIONS": "omissions",
    }
    for name, file in {**names, "PRIVATE": "private"}.items():
        monkeypatch.setattr(shim, name, str(tmp_path / file))
    return place


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Owners that files got, by name."""
    owners: dict[str, tuple[int, int]] = {}

    def chown(path: str, uid: int, gid: int, *, follow_symlinks: bool) -> None:
        assert not follow_symlinks
        owners[os.path.basename(path)] = (uid, gid)

    monkeypatch.setattr(os, "chown", chown)
    return owners


def test_a_container_gets_what_the_engine_decides_and_the_number_of_the_last_one_is_forgotten(place: Place) -> None:
    (place.folder / "container.id").write_text(CONTAINER)
    arguments = place.run(*RUN, "debian", "-c", "x")
    assert isinstance(arguments, list)
    decided = {"--network=host", "--security-opt=no-new-privileges", "--name=workspace", "--env=STAGE=test"}
    assert decided | {"--cidfile=/ws/container.id", "--label=fairlead.runner=runner"} < set(arguments)
    assert (arguments[1], arguments[-3:]) == ("run", ["debian", "-c", "x"])
    assert not (place.folder / "container.id").exists()


def test_what_is_refused_is_said_to_the_cli_and_recorded_for_the_engine(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run(*RUN, "--pid=host", "debian") == shim.REFUSED
    assert place.run(*RUN, "-l", "x" * 10_000, "debian") == shim.REFUSED
    first, second = place.refusals
    assert first == {"reason": "PolicyViolation", "message": "the option --pid"}
    assert len(second["message"]) == shim.MAX_REFUSAL
    assert "refused by the runner: the option --pid" in capsys.readouterr().err
    assert place.calls == []


def test_what_a_workspace_works_without_is_left_out_and_noted(place: Place) -> None:
    arguments = place.run(*RUN, "--privileged", "--mount", "type=bind,source=/,target=/a\nb", "debian")
    assert isinstance(arguments, list) and "--privileged" not in arguments and arguments[-1] == "debian"
    noted = (place.folder / "omissions").read_text().splitlines()
    assert noted[0] == "privileged is left out: the template does not allow privileged"
    assert len(noted) == 2 and "target=/a b is left out" in noted[1]
    assert place.refusals == []


@pytest.mark.parametrize(
    "arguments", [["ps", "-q", "-a"], ["version"], ["inspect", "--type", "container", CONTAINER], ["start", "x"], []]
)
def test_other_commands_are_left_to_podman(place: Place, arguments: list[str]) -> None:
    assert place.run(*arguments) == [str(place.folder / "podman"), *arguments]


def test_builds_have_a_program_of_their_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_build(arguments: Sequence[str], settings: dict[str, Any]) -> int:
        assert arguments == ["-f", "Dockerfile", "."]
        return 7 if settings["podman"] == str(place.folder / "podman") else 8

    monkeypatch.setattr(builds, "run_build", run_build)
    assert place.run("build", "-f", "Dockerfile", ".") == 7


@pytest.mark.parametrize(
    ("arguments", "user"),
    [
        (["-i", "-u", "dev", "-e", "A=b", CONTAINER, "/bin/sh"], "dev"),
        (["-i", "-t", "-u", "1000:1000", CONTAINER, "/bin/sh"], "1000:1000"),
        (["-i", CONTAINER, "/bin/sh"], ""),
        (["-u"], ""),
        ([], ""),
    ],
)
def test_the_user_of_a_session_is_the_one_that_the_cli_names(arguments: list[str], user: str) -> None:
    assert shim.find_user(arguments) == user


def test_the_first_session_of_a_container_gets_the_work_folder_and_the_secrets(
    place: Place, owners: dict[str, tuple[int, int]]
) -> None:
    (place.folder / "container.id").write_text(f"{CONTAINER}\n")
    place.answer("1000\n1001\n")
    session = ["exec", "-i", "-u", "dev", CONTAINER, "/bin/sh"]
    assert place.run(*session) == [str(place.folder / "podman"), *session]
    [call] = place.calls
    assert (call[:4], call[-3:]) == (["exec", "-u", "0", CONTAINER], ["dev", WORK, ""])
    assert owners == dict.fromkeys(("private", "secrets", "TOKEN"), (1000, 1001))
    place.run(*session)
    assert len(place.calls) == 1, "the owner is changed once"
    (place.folder / "container.id").write_text("d" * 64)
    place.run(*session)
    assert len(place.calls) == 2, "a new container may have other numbers for the same user"


@pytest.mark.parametrize("answer", ["", "1000\n", "x\ny\n", "-1\n-1\n", "65536\n0\n", "0\n65536\n", "1\n2\n3\n"])
def test_what_a_container_says_of_its_users_is_not_trusted(
    place: Place, owners: dict[str, tuple[int, int]], answer: str
) -> None:
    (place.folder / "container.id").write_text(CONTAINER)
    place.answer(answer)
    place.run("exec", "-u", "dev", CONTAINER, "/bin/sh")
    assert (len(place.calls), owners) == (1, {})
    assert not (place.folder / "owned").exists()


@pytest.mark.parametrize("session", [["-i", CONTAINER], ["-i", "-u", "dev", CONTAINER]])
def test_without_a_user_or_a_container_nothing_changes_its_owner(place: Place, session: list[str]) -> None:
    if "-u" not in session:
        (place.folder / "container.id").write_text(CONTAINER)
    place.run("exec", *session, "/bin/sh")
    assert place.calls == []


def test_an_image_for_another_machine_is_refused_with_a_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(shim.MACHINES, os.uname().machine, "here")
    place.answer('[{"Architecture": "there"}]')
    assert place.run("inspect", "--type", "image", "debian") == shim.REFUSED
    [refusal] = place.refusals
    assert refusal["reason"] == "PlatformMismatch" and "debian is for there" in refusal["message"]
    place.answer('[{"Architecture": "here"}]')
    capsys.readouterr()
    assert place.run("inspect", "--type", "image", "debian") == 0
    assert capsys.readouterr().out == '[{"Architecture": "here"}]'


def test_an_image_that_is_not_there_is_no_error_of_the_shim(place: Place) -> None:
    place.answer("[]", code=125)
    assert place.run("inspect", "--type", "image", "debian") == 125
    assert place.refusals == []


def test_an_image_that_cannot_be_pulled_is_reported_with_the_last_line_of_podman(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    podman = place.folder / "podman"
    podman.write_text(
        "#!/bin/sh\necho Trying to pull debian >&2\necho 'Error: pinging x: no such host' >&2\nexit 125\n"
    )
    assert place.run("pull", "debian:12") == shim.REFUSED
    message = "the image debian:12 cannot be pulled: pinging x: no such host"
    assert place.refusals == [{"reason": "ImagePullFailed", "message": message}]
    assert "Trying to pull debian" in capsys.readouterr().err
    podman.write_text("#!/bin/sh\necho Trying to pull debian >&2\n")
    assert place.run("pull", "debian:12") == 0


def test_events_that_happened_before_podman_listens_are_not_missed(place: Place) -> None:
    podman = str(place.folder / "podman")
    assert place.run("events", "--format", "json") == [podman, "events", "--since=24h", "--format", "json"]
