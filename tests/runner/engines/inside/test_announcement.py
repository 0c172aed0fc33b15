"""What a holder tells the runner before anything of a repository runs in it."""

import os
import threading
import time
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.inside import announcement
from fairlead.runner.engines.devcontainer.inside.announcement import LENGTH, NO_KEY, announce

KEY = "a" * 48


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(announcement, "PIPE", str(tmp_path / "key"))
    monkeypatch.setattr(announcement, "TAKEN", str(tmp_path / "taken"))
    return tmp_path / "key"


def receive(pipe: Path, received: list[str], seconds: float = 0.0) -> threading.Thread:
    """As the runner does, after a while."""

    def read() -> None:
        time.sleep(seconds)
        with pipe.open() as file:
            received.append(file.read(LENGTH))
        (pipe.parent / "taken").touch()

    thread = threading.Thread(target=read)
    thread.start()
    return thread


@pytest.mark.parametrize(("key", "line"), [(KEY, f"{KEY}\n"), (None, f"{NO_KEY}\n")])
def test_the_runner_reads_the_first_key_before_the_holder_goes_on(pipe: Path, key: str | None, line: str) -> None:
    os.mkfifo(pipe)
    received: list[str] = []
    reader = receive(pipe, received, seconds=0.2)
    announce(key)
    assert received == [line] and (pipe.parent / "taken").exists()
    announce("b" * 32)
    reader.join()
    assert received == [line] and not pipe.exists()


def test_a_runner_that_does_not_ask_is_not_waited_for(pipe: Path) -> None:
    began = time.monotonic()
    announce(KEY)
    assert time.monotonic() - began < 1


def test_a_runner_that_is_gone_is_not_waited_for_without_an_end(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcement, "SECONDS", 0.2)
    os.mkfifo(pipe)
    announce(KEY)
    assert not pipe.exists()
