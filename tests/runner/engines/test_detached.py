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
