"""Every command has examples in its help, and their flags exist."""

import re
import shlex

import pytest

from fairlead.cli.examples import EXAMPLES
from tests.cli.test_commands import run_fairlead
from tests.cli.test_docs import ALL, get_long_flags

WITH_EXAMPLES = [path for path in ALL if " ".join(path) in EXAMPLES]
"""All but hidden commands, which other programs call."""


def test_every_command_has_examples_and_every_example_has_a_command() -> None:
    assert set(EXAMPLES) - {"audit", "token"} == {" ".join(path) for path, command in ALL.items() if not command.hidden}


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=" ".join)
def test_the_help_ends_with_the_examples(path: tuple[str, ...]) -> None:
    output = run_fairlead(*path, "--help")[1]
    lines = output.partition("Examples:\n")[2].splitlines()
    assert [each.strip() for each in lines] == list(EXAMPLES[" ".join(path)])


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=" ".join)
def test_examples_call_the_command_with_flags_that_it_has(path: tuple[str, ...]) -> None:
    for example in EXAMPLES[" ".join(path)]:
        command = re.search(r"fairlead [^|)>]*", example)
        assert command, example
        words = shlex.split(command[0])
        assert words[1 : len(path) + 1] == list(path)
        own = words[: words.index("--")] if "--" in words else words  # what follows belongs to another program
        flags = {each for each in own if each.startswith("--")}
        assert flags <= get_long_flags(ALL[path])
