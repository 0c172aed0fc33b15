"""The standard streams of a command: a process whose output is a pipe, without settings of Python."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Prints a line in the way of some command, and then waits until its stdin ends, as a watch does.
PROGRAM = """
import sys
from fairlead.cli.ui import output, streams

def run():
    {statement}
    sys.stdin.read()

streams.run_with_streams(run)
"""
TEXT = "print('first')"
ROW = "output.print_row(['NAME'], ['first'], [5])"
NAME = "output.print_name('Project', 'first')"
TEMPLATE = "output.print_value({'a': 'first'}, output.parse_output('jsonpath={.a}'))"
TABLE = "output.print_table(['NAME'], [['first']], '')"
EVENT = "output.print_event('ADDED', {'metadata': {'name': 'first'}}, output.Output.JSON)"
DATA = "output.print_data(['first'], output.Output.YAML)"
NOTE = "output.print_note('first')"


@contextmanager
def start_program(statement: str) -> Iterator["subprocess.Popen[str]"]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(statement=statement)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("statement", [TEXT, ROW, NAME, TEMPLATE, TABLE, EVENT, DATA, NOTE])
def test_a_line_reaches_the_reader_of_a_pipe_while_the_command_goes_on(statement: str) -> None:
    with start_program(statement) as process:
        assert process.stdout and process.stderr
        lines = iter((process.stderr if statement == NOTE else process.stdout).readline, "")
        assert any("first" in line for line in lines)
        assert process.poll() is None


def test_a_reader_that_has_gone_ends_the_command_without_a_message() -> None:
    with start_program("print('first'); sys.stdin.readline(); print('second')") as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == "first\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(30) == 1
        assert process.stderr.read() == ""
