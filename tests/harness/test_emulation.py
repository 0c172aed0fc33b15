"""Tests of another architecture are skipped with a reason where the machine cannot run its programs."""

import platform
from pathlib import Path

import pytest

from tests.harness import emulation
from tests.harness.emulation import require_architecture


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An amd64 machine without qemu. Its folders are ordinary ones."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(emulation, "BINFMT", tmp_path)
    monkeypatch.setattr(emulation, "RULES", tmp_path)


def test_the_architecture_of_the_machine_needs_nothing() -> None:
    require_architecture("amd64")


def test_without_qemu_the_reason_says_what_installs_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="`make test-container` installs it"):
        require_architecture("arm64")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("disabled\ninterpreter /usr/bin/qemu\nflags: POF\n", "is disabled"),
        ("enabled\ninterpreter /usr/bin/qemu\nflags: PO\n", "lacks the flag F"),
    ],
)
def test_a_rule_that_is_of_no_use_in_containers_is_not_enough(state: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "qemu-aarch64").write_text(state)
    with pytest.raises(pytest.skip.Exception, match=reason):
        require_architecture("arm64")


def test_a_rule_that_works_in_containers_is_enough(tmp_path: Path) -> None:
    (tmp_path / "qemu-aarch64").write_text("enabled\ninterpreter /usr/bin/qemu\nflags: POF\n")
    require_architecture("arm64")
