"""The format of task logs: whatever tools write, each line is a JSON object with a message of limited length."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.runner.task_log import TaskLog
from fairlead.runner.tasks import MAX_LINE_BYTES, MessageLog, OutputLines
from tests.harness.virtual_time import LoopClock


def split(*chunks: bytes, seconds: float = 0.0) -> list[str]:
    """The messages of output that arrives in these chunks, with this time between them."""
    lines = OutputLines()
    found = [message for index, chunk in enumerate(chunks) for message in lines.feed(chunk, index * seconds)]
    return [*found, *lines.end()]


@pytest.mark.parametrize(
    ("chunks", "messages"),
    [
        ((b"one\ntwo\n",), ["one", "two"]),
        ((b"o", b"ne", b"\ntw", b"o"), ["one", "two"]),
        ((b"one\r\ntwo\r", b"\nthree\r"), ["one", "two", "three"]),
        ((b"\n\n",), ["", ""]),
        (
            (
                b"caf\xc3",
                b"\xa9 \xff\n",
            ),
            ["café \ufffd"],
        ),
        ((b"10%\r20%\r30%\rdone\n",), ["done"]),
        ((b"",), []),
    ],
)
def test_output_becomes_lines(chunks: tuple[bytes, ...], messages: list[str]) -> None:
    assert split(*chunks) == messages


def test_progress_is_passed_on_once_a_second() -> None:
    chunks = [b"%d%%\r" % percent for percent in range(101)]
    assert split(*chunks, b"done\n", seconds=0.25) == [*(f"{percent}%" for percent in range(0, 98, 4)), "done"]


def test_a_line_without_an_end_is_cut_between_characters() -> None:
    text = "a" + "é" * 3 * MAX_LINE_BYTES
    content = text.encode()
    parts = [content[start : start + 101] for start in range(0, len(content), 101)]
    for messages in (split(content), split(*parts), split(content, b"\n")):
        assert "".join(messages) == text
        assert all(len(message.encode()) <= MAX_LINE_BYTES for message in messages)


@pytest.mark.parametrize("position", [0, 10, MAX_LINE_BYTES - 3, MAX_LINE_BYTES + 100, 3 * MAX_LINE_BYTES - 5])
def test_a_secret_is_masked_wherever_it_is(position: int) -> None:
    lines = OutputLines()
    lines.mask(["canary-7f3"])
    content = b"x" * position + b"canary-7f3" + b"y" * 2 * MAX_LINE_BYTES
    messages = [
        message for start in range(0, len(content), 1000) for message in lines.feed(content[start : start + 1000], 0)
    ]
    assert "canary" not in "".join([*messages, *lines.end()])


@pytest.mark.parametrize("length", [10, 5000, 40_000])
def test_a_long_secret_is_masked_wherever_a_line_is_cut(length: int) -> None:
    secret = "".join(chr(ord("a") + number % 26) + str(number) for number in range(length))[:length]
    for position in (0, 1, MAX_LINE_BYTES - length // 2, MAX_LINE_BYTES - 1, MAX_LINE_BYTES):
        lines = OutputLines()
        lines.mask([secret])
        content = b"-" * max(0, position) + secret.encode() + b"-" * MAX_LINE_BYTES
        chunks = [content[start : start + 997] for start in range(0, len(content), 997)]
        messages = [message for chunk in chunks for message in lines.feed(chunk, 0)]
        assert "".join([*messages, *lines.end()]).strip("-") == "********"


@pytest.mark.parametrize("cut", range(1, 10))
async def test_a_secret_with_a_message_of_the_runner_in_between_is_masked(tmp_path: Path, cut: int) -> None:
    log = TaskLog(tmp_path / "l")
    messages = MessageLog(log, LoopClock())
    messages.mask(["canary-7f3"])
    messages.log(b"is canary-7f3"[: 3 + cut])
    messages.log_message("step Build")
    messages.log(b"canary-7f3 and can"[cut:])
    messages.end_output()
    found = [json.loads(line)["message"] for line in log.read(0).data.splitlines()]
    assert found == ["is ", "step Build", "******** and can"]


@given(st.lists(st.binary(max_size=60)), st.binary(max_size=10))
def test_any_output_ends_up_in_messages_without_newlines(chunks: list[bytes], end: bytes) -> None:
    messages = split(*chunks, end)
    assert not any("\n" in message or "\r" in message for message in messages)
    if not any(byte in b"".join((*chunks, end)) for byte in b"\r"):
        text = b"".join((*chunks, end)).decode(errors="replace")
        assert "\n".join(messages) == text.removesuffix("\n")


async def test_a_log_has_the_messages_of_the_runner_and_the_output_in_order(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "l")
    messages = MessageLog(log, LoopClock())
    messages.log(b"first\nhalf a li")
    messages.log_message("step Build")
    messages.log_message("failed \udcff", "error")
    found = [json.loads(line) for line in log.read(0).data.splitlines()]
    assert [(each["level"], each["message"]) for each in found] == [
        ("info", "first"),
        ("info", "half a li"),
        ("info", "step Build"),
        ("error", "failed ?"),
    ]
    assert all(each["time"] for each in found)


async def test_a_line_that_a_killed_process_did_not_complete_is_ended(tmp_path: Path) -> None:
    TaskLog(tmp_path / "l").append(b'{"message": "one"}\n{"mess')
    log = TaskLog(tmp_path / "l")
    MessageLog(log, LoopClock()).log_message("two")
    first, cut, last = log.read(0).data.splitlines()
    assert (json.loads(first)["message"], cut, json.loads(last)["message"]) == ("one", b'{"mess', "two")
