"""fairlead.cli.workspaces.targets: messages and steps from the bytes of a log."""

import pytest

from fairlead.cli.workspaces.targets import LineSplitter, LogLine, parse_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"message":"step Clone"}', LogLine("step Clone", "Clone")),
        (
            b'{"time":"t","level":"info","message":"step Build took 12.5 s"}',
            LogLine("step Build took 12.5 s", "Build", 12.5),
        ),
        (b'{"message":"step by step"}', LogLine("step by step")),
        (b"STEP 1/4: FROM debian", LogLine("STEP 1/4: FROM debian")),
        (b'{"message":"\\u001b[32mgreen\\u001b[0m "}', LogLine("green")),
        (b'{"message":" 10%\\r 90%"}', LogLine(" 90%")),
        (b'{"other":1}', LogLine('{"other":1}')),
        (b"{broken", LogLine("{broken")),
        (b"\xff", LogLine("\ufffd")),
    ],
)
def test_lines_of_runners_and_of_tools_are_read(line: bytes, expected: LogLine) -> None:
    assert parse_line(line) == expected


def test_lines_are_assembled_from_chunks_that_end_anywhere() -> None:
    splitter = LineSplitter()
    content = b'{"message":"first"}\nsecond\nthird'
    lines = [line.message for byte in content for line in splitter.feed(bytes([byte]))]
    assert (lines, [line.message for line in splitter.finish()]) == (["first", "second"], ["third"])
    assert list(splitter.finish()) == []
