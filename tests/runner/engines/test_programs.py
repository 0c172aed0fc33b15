"""What is kept of the output of programs. A shell stands for them."""

import os

import pytest

from fairlead.runner.engines.devcontainer.programs import (
    MAX_ERROR_BYTES,
    MAX_OUTPUT_BYTES,
    Result,
    last_line,
    run_program,
)


async def run(script: str, stdin: bytes = b"") -> Result:
    return await run_program(["/bin/sh", "-c", script], {"PATH": os.defpath}, stdin)


async def test_both_outputs_and_the_exit_code_come_back() -> None:
    assert await run("cat; echo more; echo wrong >&2; exit 3", b"in ") == Result(3, "in more\n", "wrong\n")
    assert await run("true") == Result(0, "", "")


async def test_the_end_of_many_messages_is_kept() -> None:
    result = await run("yes message | head -c 1000000 >&2; echo last >&2")
    assert len(result.errors) == MAX_ERROR_BYTES and result.errors.endswith("last\n")


async def test_a_program_cannot_write_without_end() -> None:
    result = await run("yes message")
    assert result.code != 0
    assert len(result.output) == MAX_OUTPUT_BYTES
    assert (await run("yes message >&2")).code != 0


async def test_a_caller_that_expects_little_gets_no_more() -> None:
    result = await run_program(["/usr/bin/yes"], {"PATH": os.defpath}, max_output_bytes=8192)
    assert (result.code, len(result.output)) == (1, 8192)


@pytest.mark.parametrize("text", ["", "\n" * 1000, "first\n last \n\n", " last", "last\n"])
def test_the_last_line_has_no_spaces_around_it(text: str) -> None:
    assert last_line(text) == ("last" if "last" in text else "no message")
