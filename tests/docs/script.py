"""Builds and runs one script of all command blocks of a document, with a server of its own.

Documents other than the tutorials and README.md assume a running server and a login: the script starts both first.
Ports of the documents are replaced by free ones, and so is the address of the example server.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import ROOT, Block, Command

PORTS = ("8443", "9443", "9444")
"""Ports that servers in documents listen on."""
EXAMPLE_URL = "https://fairlead.example.com"
START = Block(
    "the start of the script", 0, "sh", "fairlead up\n", background_until="Ctrl-C stops the server", is_setup=True
)
LOGIN = Block(
    "the login of the script",
    0,
    "sh",
    "export KUBECONFIG=~/.local/share/fairlead/admin.kubeconfig\nfairlead login --kubeconfig $KUBECONFIG\n",
    is_setup=True,
)
PROLOGUE = """set -euo pipefail
await() {
  for _ in {1..600}; do
    if grep -qF -- "$1" "$2"; then return 0; fi
    sleep 0.1
  done
  echo "did not print: $1"; cat "$2"; return 1
}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a block, and the file with what it printed."""

    block: Block
    command: Command
    output: Path


def choose_ports() -> dict[str, str]:
    """A free port for each of those in the documents."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = {name: str(each.getsockname()[1]) for name, each in zip(PORTS, sockets, strict=True)}
    for each in sockets:
        each.close()
    return ports


def select_blocks(document: str, blocks: list[Block]) -> list[Block]:
    """The blocks to run, after the start of a server unless the document starts one itself."""
    selected = [block for block in blocks if not block.not_run and not block.run_by]
    if not any(not block.is_setup for block in selected):
        return []
    return selected if document.startswith("docs/tutorials/") else [START, LOGIN, *selected]


def build_steps(blocks: list[Block], folder: Path) -> list[Step]:
    pairs = [(block, command) for block in blocks for command in block.commands()]
    return [Step(block, command, folder / f"{number}.out") for number, (block, command) in enumerate(pairs)]


def build_script(steps: list[Step], ports: dict[str, str]) -> str:
    return PROLOGUE + "".join(line for step in steps for line in build_step(step, ports))


def build_step(step: Step, ports: dict[str, str]) -> Iterator[str]:
    text = replace_addresses(step.command.text, ports)
    out = shlex.quote(str(step.output))
    yield f"echo {shlex.quote(step.output.name)} > {shlex.quote(str(step.output.parent / 'current'))}\n"
    if step.block.background_until:
        yield f": >{out}\n( exec </dev/null\n{text}\n) >{out} 2>&1 &\n"
        yield f"await {shlex.quote(step.block.background_until)} {out}\n"
    elif code := step.block.exit_code_of(step.command):
        yield f"code=0\n{{\n{text}\n}} >{out} 2>&1 || code=$?\n[ $code = {code} ]\n"
    else:
        yield f"{{\n{text}\n}} >{out} 2>&1\n"


def replace_addresses(text: str, ports: dict[str, str]) -> str:
    text = text.replace(EXAMPLE_URL, f"https://127.0.0.1:{PORTS[0]}")
    for name, port in ports.items():
        text = re.sub(rf"(?<=[: =-]){name}\b", port, text)
    return text


def run_script(script: str, folder: Path, kubectl: Path, port: str) -> "subprocess.CompletedProcess[str]":
    """Runs it as a user with a home folder of its own, in a folder with the examples."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    (work / "deploy").symlink_to(ROOT / "deploy")
    path = ":".join(map(str, (Path(sys.executable).parent, kubectl.parent, "/usr/bin", "/bin", "/usr/sbin", "/sbin")))
    environment = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "FAIRLEAD_PORT": port, "COLUMNS": "200"}
    environment |= {"CURL_CA_BUNDLE": str(home / ".local/share/fairlead/tls/ca.crt")}
    inherited = {key: value for key, value in os.environ.items() if key.startswith(("CI_", "TZ", "TMPDIR"))}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=work,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        process.wait()
    finally:  # also when the test is interrupted: the servers that the script has started must end
        end_group(process.pid)
    assert process.stdout is not None
    with process.stdout:
        return subprocess.CompletedProcess(script, process.wait(), process.stdout.read())


def end_group(group: int) -> None:
    """Ends the processes of a group, and waits until there is none."""
    for number in (signal.SIGTERM, *(0 for _ in range(200)), signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def describe_failure(steps: list[Step], folder: Path, output: str) -> str:
    current = folder / "current"
    name = current.read_text().strip() if current.exists() else ""
    step = next((each for each in steps if each.output.name == name), None)
    if step is None:
        return output
    printed = step.output.read_text()[-4000:] if step.output.exists() else ""
    advice = "correct it, or mark it as in tests/docs/blocks.py"
    return f"{step.block.place}: this command failed; {advice}:\n{step.command.text}\n{printed}\n{output}"


def find_wrong_output(step: Step) -> str | None:
    """The first line below a command that it did not print, in order."""
    if step.block.is_example_output:
        return None
    printed = step.output.read_text().splitlines()
    position = 0
    for line in step.command.output:
        if line.strip() in ("...", "…"):
            continue
        pattern = build_pattern(line)
        found = next((at for at in range(position, len(printed)) if pattern.fullmatch(printed[at].strip())), None)
        if found is None:
            shown = "\n".join(printed)
            return f"{step.block.place}: `{step.command.text}` did not print: {line}\nbut:\n{shown}"
        position = found + 1
    return None


def build_pattern(line: str) -> "re.Pattern[str]":
    """Numbers and ages may differ, `...` stands for anything, and columns for any width."""
    words = []
    for word in line.split():
        escaped = re.escape(word).replace(r"\.\.\.", ".*").replace("…", ".*")
        words.append(r"[\dhmsd]+" if re.fullmatch(r"(\d+[smhd])+", word) else re.sub(r"\d+", r"\\d+", escaped))
    return re.compile(r"\s+".join(words))
