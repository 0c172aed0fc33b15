"""Secrets are masked in logs, wherever the output is cut."""

import json
import random
import time
from collections.abc import Mapping

import pytest

from fairlead.runner.engines.contract import TaskContext
from fairlead.runner.engines.devcontainer.creation import CliLog, Progress
from fairlead.runner.engines.masking import MASK, MAX_LINE_BYTES, LineLog, Masker, SecretValue, StreamMasker
from tests.runner.harness.tasks import RecordedTask

SECRET, LINES, QUOTED = "canary-7f3-é", "first-line\nsecond-line", 'with"quote\\'
OVERLAPPING = ("abcdef", "abcd", "cdefgh", "aaaa", "aabb", "bbcc")
TEXT = f"begin {SECRET}{SECRET} canary- {LINES} abcdefgh aaaaaaa aabbcc abc {QUOTED} end"


def feed(masker: Masker, *chunks: bytes) -> bytes:
    stream = StreamMasker(masker)
    return b"".join([*(stream.feed(chunk) for chunk in chunks), stream.end()])


@pytest.mark.parametrize("secrets", [(SECRET,), (LINES, SECRET, QUOTED), OVERLAPPING])
def test_a_stream_is_masked_like_its_whole_wherever_it_is_cut(secrets: tuple[str, ...]) -> None:
    masker, content = Masker(secrets), TEXT.encode()
    whole = masker.mask(content)
    assert not any(part.encode() in whole for secret in secrets for part in secret.splitlines())
    for cut in range(len(content) + 1):
        assert feed(masker, content[:cut], content[cut:]) == whole, cut
    for first in range(len(content) + 1):
        for second in (first + 1, first + 2, first + 5):
            assert feed(masker, content[:first], content[first:second], content[second:]) == whole, (first, second)
    assert feed(masker, *(content[position : position + 1] for position in range(len(content)))) == whole


def test_any_chunks_are_masked_like_the_whole() -> None:
    numbers = random.Random(7)
    for _ in range(3000):
        secrets = ["".join(numbers.choices("ab", k=numbers.randint(4, 7))) for _ in range(3)]
        masker, content = Masker(secrets), "".join(numbers.choices("abc", weights=(4, 4, 1), k=30)).encode()
        position, chunks = 0, []
        while position < len(content):
            size = numbers.randint(1, 5)
            chunks.append(content[position : position + size])
            position += size
        masked = feed(masker, *chunks)
        assert not any(secret.encode() in masked for secret in secrets)
        assert masked == masker.mask(content)


def test_what_waits_is_bounded() -> None:
    masker = Masker(["a" * 1000])
    stream = StreamMasker(masker)
    passed = b""
    for _ in range(100):
        passed += stream.feed(b"a" * 700)
        assert len(stream._held) < 1000
    assert passed + stream.end() == MASK


REPEATED = {
    "one letter": (["aaaa"], b"a"),
    "many secrets of one letter": (["a" * length for length in range(4, 104)], b"a"),
    "a long secret of one letter": (["a" * 32768], b"a"),
    "a long secret that never comes": (["a" * 65535 + "b"], b"a" * 65534 + b"c"),
    "a long secret of two letters": (["ab" * 16384], b"ab"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_letters_take_no_longer_than_others(name: str) -> None:
    secrets, printed = REPEATED[name]
    stream = StreamMasker(Masker(secrets))
    piece = (printed * 65536)[:65536] if len(printed) < 3 else printed
    began = time.process_time()
    passed = b"".join(stream.feed(piece) for _ in range(4)) + stream.end()
    assert time.process_time() - began < 0.5
    assert passed == (MASK if name != "a long secret that never comes" else piece * 4)


def test_a_value_is_found_wherever_it_is() -> None:
    numbers = random.Random(9)
    for _ in range(5000):
        value = bytes(numbers.choices(b"ab", k=numbers.randint(4, 9)))
        data = bytes(numbers.choices(b"ab", weights=(5, 2), k=40))
        starts = [start for start in range(len(data)) if data.startswith(value, start)]
        covered = {position for start in starts for position in range(start, start + len(value))}
        found = {position for start, end in SecretValue(value).find(data) for position in range(start, end)}
        assert found == covered, (value, data)
        first = max(0, len(data) - len(value) + 1)
        begin = next((each for each in range(first, len(data)) if value.startswith(data[each:])), len(data))
        assert SecretValue(value).find_begin(data, len(data)) == begin
        assert SecretValue(value)._read_begin(data, first) == begin


def test_what_is_no_secret_does_not_wait() -> None:
    stream = StreamMasker(Masker([SECRET]))
    assert stream.feed(b"Password: ") == b"Password: "
    assert stream.feed(b"can") == b""
    assert stream.feed(b"not\n") == b"cannot\n"


# --- the log of the dev container CLI ---------------------------------------------------------------------------------


def write_entries(*entries: Mapping[str, object]) -> str:
    task = RecordedTask()
    progress, log = Progress(), CliLog(task, [SECRET])
    for each in entries:
        for _ in log.write(progress.read_line(json.dumps({"level": 3, **each}).encode() + b"\n")):
            continue
    log.end()
    return task.text


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_in_two_entries_is_masked(cut: int) -> None:
    first, second = {"type": "raw", "text": f"is {SECRET[:cut]}"}, {"type": "raw", "text": f"{SECRET[cut:]}\nend"}
    assert write_entries(first, second) == "is ********\nend\n"
    between = {"type": "text", "text": "a message"}
    assert write_entries(first, between, second) == "is \na message\n********\nend\n"


def test_entries_without_a_newline_are_one_line_and_messages_are_lines() -> None:
    entries = [{"type": "raw", "text": "10% "}, {"type": "raw", "text": "20%"}, {"type": "text", "text": "built"}]
    assert write_entries(*entries, {"type": "text", "text": "started\n"}) == "10% 20%\nbuilt\nstarted\n"


# --- the log of pods --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(MAX_LINE_BYTES - len(SECRET) - 2, MAX_LINE_BYTES + 3))
def test_a_secret_at_the_cut_of_a_long_line_of_a_pod_is_masked(position: int) -> None:
    task = RecordedTask()
    context: TaskContext = task
    log = LineLog(context, [SECRET])
    content = b"x" * position + SECRET.encode() + b"y" * 100
    cut = MAX_LINE_BYTES + 1
    for chunk in (content[:cut], content[cut:]):
        log.feed(chunk)
    log.end()
    text = task.text.replace("\n", "")
    assert text.strip("x").rstrip("y") == MASK.decode()


def test_very_many_lines_of_a_pod_are_written_at_once() -> None:
    """Each write to the log of a task costs far more than a line."""
    writes: list[bytes] = []

    class CountedTask(RecordedTask):
        def log(self, data: bytes) -> None:
            writes.append(data)

    log = LineLog(CountedTask(), [SECRET])
    log.feed(b"begin" + b"\n" * 65_000 + b" last one \n\n\nmore")
    log.end()
    assert len(writes) == 2
    assert b"".join(writes) == b"begin" + b"\n" * 65_000 + b" last one \n\n\nmore\n"
    assert log.last_line == "more"
    log.feed(b"of it\n \n\n")
    assert log.last_line == "of it"
