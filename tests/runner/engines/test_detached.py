"""A command that outlives the runner."""

from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer import detached
from fairlead.runner.engines.devcontainer.detached import DetachedCommand


async def test_a_command_that_prints_without_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "FREED_BYTES", 1 << 20)
    command, lines = DetachedCommand(tmp_path), 0

    def count(line: bytes) -> None:
        nonlocal lines
        lines += 1
        assert line == b"x" * 1023 + b"\n"

    script = f"i=0; while [ $i -lt 40 ]; do yes {'x' * 1023} | head -n 256; i=$((i+1)); sleep 0.01; done >&2"
    command.start("task", ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(count) == 0
    log = (tmp_path / "log").stat()
    assert (lines, log.st_size) == (40 * 256, 40 * 256 * 1024)
    assert log.st_blocks * 512 < 3 << 20


async def test_the_log_goes_on_where_an_earlier_runner_stopped_reading(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2; echo two >&2"], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(lines.append) == 0
    (tmp_path / "offset").write_text("4")
    assert await DetachedCommand(tmp_path).follow(lines.append) == 0
    assert lines == [b"one\n", b"two\n", b"two\n"]


async def test_the_log_is_passed_on_again_if_a_crash_has_emptied_the_file_with_the_position(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2"], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(lines.append) == 0
    (tmp_path / "offset").write_bytes(b"")
    assert await DetachedCommand(tmp_path).follow(lines.append) == 0
    assert lines == [b"one\n", b"one\n"]


async def test_the_position_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A runner that is killed while it writes the position leaves the one before."""
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2"], {"PATH": "/usr/bin:/bin"})
    (tmp_path / "offset").write_text("0")
    with (tmp_path / "offset").open() as former:
        assert await command.follow(lines.append) == 0
        assert (former.read(), (tmp_path / "offset").read_text()) == ("0", "4")
