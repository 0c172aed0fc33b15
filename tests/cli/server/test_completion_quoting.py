"""What the shells insert for names with characters that have a meaning in a shell, in a real terminal."""

import os
import pty
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.cli.server.completion import SCRIPTS, Shell

PROGRAM = """#!/bin/sh
if [ -n "$_FAIRLEAD_COMPLETE" ]; then cat candidate; else printf '%s\\n' "$@" >arguments; fi
"""
PROMPT, CONTINUED = "READY>", "MORE>"
FISH_PROMPT = f"function fish_prompt; echo -n '{PROMPT}'; end; set fish_greeting; set -g fish_autosuggestion_enabled 0"
START = {
    Shell.BASH: (["--norc", "--noprofile", "-i"], "source ./script"),
    Shell.ZSH: (["-f", "-i"], "autoload -U compinit && compinit -u -D && source ./script"),
    Shell.FISH: (["--no-config", "-i", "-C", FISH_PROMPT], "source ./script"),
}
NAMES = (
    "x;touch${IFS}pwned",
    "x$(touch${IFS}pwned)",
    "x`touch${IFS}pwned`",
    "x&touch pwned",
    "x|touch pwned",
    "x>pwned",
    "x (touch pwned)",
    "x';touch pwned;'",
    'x";touch pwned;"',
    "x\\;touch pwned",
    "x!!*?[a-z]{1,2}#",
)


OpenTerminal = Callable[..., "Terminal"]


@dataclass
class Terminal:
    """A shell in a terminal."""

    folder: Path
    descriptor: int
    output: bytes = b""

    def type_line(self, text: str) -> None:
        """Types a line, and waits for the next prompt."""
        self.output = b""
        os.write(self.descriptor, text.encode() + b"\r")
        self.wait_for("\n")
        self.wait_for(PROMPT, CONTINUED, after=b"\n")

    def wait_for(self, *texts: str, after: bytes = b"") -> None:
        deadline = time.monotonic() + 60
        while not any(text.encode() in self.output[self.output.find(after) :] for text in texts):
            assert time.monotonic() < deadline, self.output
            if select.select([self.descriptor], [], [], 1)[0]:
                self.output += os.read(self.descriptor, 65536)

    def complete(self, words: str, candidate: str) -> str:
        """What the program gets if Tab and Enter are typed after these words; empty if it was not run."""
        (self.folder / "candidate").write_text(candidate + "\n")
        self.type_line(words + "\t")
        arguments = self.folder / "arguments"
        if not arguments.exists():
            return ""
        content = arguments.read_text().removesuffix("\n")
        arguments.unlink()
        return content


@pytest.fixture
def open_terminal(component: Callable[[str], Path], tmp_path: Path) -> Iterator[OpenTerminal]:
    processes: list[tuple[int, int]] = []

    def start(shell: Shell, locale: str = "C.UTF-8") -> Terminal:
        (tmp_path / "script").write_text(SCRIPTS[shell])
        program = tmp_path / "bin" / "fairlead"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM)
        program.chmod(0o755)
        path, (arguments, source) = str(component(shell)), START[shell]
        variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "LC_ALL": locale}
        prompts = {"PS1": PROMPT, "PS2": CONTINUED, "TERM": "dumb"}
        process, descriptor = pty.fork()
        if process == 0:
            os.chdir(tmp_path)
            os.execve(path, [path, *arguments], variables | prompts)
        processes.append((process, descriptor))
        terminal = Terminal(tmp_path, descriptor)
        terminal.wait_for(PROMPT)
        terminal.type_line(source)
        return terminal

    yield start
    for process, descriptor in processes:
        os.close(descriptor)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@pytest.mark.parametrize(
    "shell", [Shell.BASH, *(pytest.param(each, marks=pytest.mark.long) for each in (Shell.ZSH, Shell.FISH))]
)
def test_a_completed_name_is_one_argument_and_runs_nothing(
    shell: Shell, open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    terminal = open_terminal(shell)
    for name in ("plain-name", *NAMES):
        assert terminal.complete("fairlead get x" if name[0] == "x" else "fairlead get p", name) == f"get\n{name}"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("quote", ["'", '"', "$'"])
def test_a_name_runs_nothing_after_an_opening_quote_either(
    quote: str, locale: str, open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    """In the locale C, bash would quote the umlaut in a way that ends the quotes of the user."""
    for name in (*NAMES, "x\u00fc;touch pwned;"):
        terminal = open_terminal(Shell.BASH, locale)
        terminal.complete(f"fairlead get {quote}x", name)
        if CONTINUED.encode() in terminal.output:
            terminal.type_line(quote[-1])
    assert not (tmp_path / "pwned").exists()
