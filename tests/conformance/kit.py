"""The conformance kit as the tests see it: its cases, a server to ask, and what a replay of the cases said.

The tests and their `conftest.py` use it. It starts `python -m fairlead up`, and `replay.py` beside it as a program of
its own: what is compared is what any client would get. All cases go through one replay, because starting the program
costs more than most cases, and because two at once would see each other's objects.
"""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
PREFIX = "/kubernetes/management"
PROJECTS = ("demo", "other")
"""The cases work in the namespaces of these two."""

SECOND_USER, SECOND_GROUP = "user2", "group2"
"""Somebody without rights, in a group that has none either."""

VERDICT = re.compile(r"(ok|SOFT-DIFF|HARD-DIFF) (\S+)( \(\d+ allowed\))?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the replay said about one case: its verdict, and the lines that show each difference."""

    verdict: str
    text: str

    @property
    def hard(self) -> bool:
        return self.verdict == "HARD-DIFF"

    @property
    def soft(self) -> bool:
        return self.verdict == "SOFT-DIFF"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a replay: the outcome of each case by its name, and how the server ended."""

    outcomes: dict[str, Outcome]
    exit_code: int | None
    log: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it is, the keys of its administrator and of somebody without rights, and the process."""

    url: str
    key: str
    second_key: str
    process: "subprocess.Popen[str]"


def areas() -> dict[str, str]:
    """The area of every case by its name, in the order in which the cases are replayed."""
    files = sorted((HERE / "cases").glob("*.json"))
    return {case["name"]: case["area"] for file in files for case in json.loads(file.read_text(encoding="utf-8"))}


@contextmanager
def serving(folder: Path, store: str = "") -> Iterator[Server]:
    """A server with its data and its log in the folder, on another store if one is named.

    It is asked to end, so its exit code is there afterwards.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    if store:
        ours["FAIRLEAD_STORE"] = store
    command = [sys.executable, "-m", "fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json"]
    with (
        log_of(folder).open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            cwd=HERE.parents[1],
            env=ours,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield _ready(process, folder)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        finally:
            process.kill()


def log_of(folder: Path) -> Path:
    return folder / "server.log"


def _ready(process: "subprocess.Popen[str]", folder: Path) -> Server:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the server did not start:\n{log_of(folder).read_text(encoding='utf-8')[-1000:]}")
    told = json.loads(line)
    headers = {"authorization": f"Bearer {told['accessKey']}"}
    trust = ssl.create_default_context(cafile=told["caFile"])
    base = f"{told['url']}{PREFIX}/apis/management.service.sh/v1"
    with httpx.Client(base_url=base, headers=headers, verify=trust) as client:
        for name in PROJECTS:
            _create(client, "projects", "Project", name, {})
        _create(client, "users", "User", SECOND_USER, {"groups": [SECOND_GROUP]})
        second = _create(client, "ownedaccesskeys", "OwnedAccessKey", "second", {"user": SECOND_USER})
    return Server(told["url"], told["accessKey"], second["spec"]["key"], process)


def _create(client: httpx.Client, plural: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    created: dict[str, Any] = client.post(f"/{plural}", json=body).raise_for_status().json()
    return created


def replay(server: Server, names: Iterable[str], *, golden: Path = GOLDEN) -> dict[str, Outcome]:
    """Asks the server what the cases ask, and compares the answers with the recordings in `golden`."""
    command = [sys.executable, str(HERE / "replay.py"), "--base", server.url, "--prefix", PREFIX]
    command += ["--token", server.key, "--token2", server.second_key]
    command += ["--user", "admin", "--user2", SECOND_USER, "--group2", SECOND_GROUP]
    command += ["--cases", str(HERE / "cases"), "--against", str(golden)]
    command += ["--allow", str(HERE / "allow.json")]
    command += [f"--only={name}" for name in names]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    told, _, closing = result.stdout.rstrip().rpartition("\n")
    if " cases: " not in closing:
        raise RuntimeError(f"the replay broke off:\n{result.stderr[-1000:]}")
    return outcomes(told)


def outcomes(output: str) -> dict[str, Outcome]:
    """Reads the replay's lines: a verdict opens a case, and what follows is about it."""
    known = areas()
    found: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        verdict = VERDICT.fullmatch(line)
        if verdict and verdict[2] in known:
            lines = []
            found[verdict[2]] = verdict[1], lines
        lines.append(line)
    return {name: Outcome(verdict, "\n".join(text)) for name, (verdict, text) in found.items()}
