"""Runs the conformance kit: reads its cases, starts a server, and parses the results of a replay.

The tests and their `conftest.py` use it. It starts `python -m fairlead up`, and `replay.py` beside it as a program of
its own: the responses are those that any client gets. All cases go through one replay, because starting the program
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
"""The cases use the namespaces of these projects."""

SECOND_USER, SECOND_GROUP = "user2", "group2"
"""A user and a group without permissions."""

VERDICT = re.compile(r"(ok|SOFT-DIFF|HARD-DIFF) (\S+)( \(\d+ allowed\))?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case: its verdict, and the lines with each difference."""

    verdict: str
    text: str

    @property
    def is_hard(self) -> bool:
        return self.verdict == "HARD-DIFF"

    @property
    def is_soft(self) -> bool:
        return self.verdict == "SOFT-DIFF"


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a replay: the outcome of each case by name, and the exit code and log of the server."""

    outcomes: dict[str, Outcome]
    exit_code: int | None
    log: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its URL, the keys of its administrator and of the second user, and the process."""

    url: str
    key: str
    second_key: str
    process: "subprocess.Popen[str]"


def read_case_areas() -> dict[str, str]:
    """The area of every case by its name, in the order in which the cases are replayed."""
    files = sorted((HERE / "cases").glob("*.json"))
    return {case["name"]: case["area"] for file in files for case in json.loads(file.read_text(encoding="utf-8"))}


@contextmanager
def run_server(folder: Path, store: str = "", workers: int = 1) -> Iterator[Server]:
    """Runs a server with its data and its log in the folder, on another store if one is given.

    It is terminated gracefully, so its exit code is available afterwards.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    environment["FAIRLEAD_WORKERS"] = str(workers)
    if store:
        environment["FAIRLEAD_STORE"] = store
    command = [sys.executable, "-m", "fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json"]
    with (
        get_log_path(folder).open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            cwd=HERE.parents[1],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield _prepare_server(process, folder)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        finally:
            process.kill()


def get_log_path(folder: Path) -> Path:
    return folder / "server.log"


def _prepare_server(process: "subprocess.Popen[str]", folder: Path) -> Server:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the server did not start:\n{get_log_path(folder).read_text(encoding='utf-8')[-1000:]}")
    output = json.loads(line)
    headers = {"authorization": f"Bearer {output['accessKey']}"}
    tls_context = ssl.create_default_context(cafile=output["caFile"])
    base = f"{output['url']}{PREFIX}/apis/management.service.sh/v1"
    with httpx.Client(base_url=base, headers=headers, verify=tls_context) as client:
        for name in PROJECTS:
            _create(client, "projects", "Project", name, {})
        _create(client, "users", "User", SECOND_USER, {"groups": [SECOND_GROUP]})
        second = _create(client, "ownedaccesskeys", "OwnedAccessKey", "second", {"user": SECOND_USER})
    return Server(output["url"], output["accessKey"], second["spec"]["key"], process)


def _create(client: httpx.Client, plural: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    created: dict[str, Any] = client.post(f"/{plural}", json=body).raise_for_status().json()
    return created


def replay(server: Server, names: Iterable[str], *, golden: Path = GOLDEN) -> dict[str, Outcome]:
    """Sends the requests of the cases, and compares the responses with the recordings in `golden`."""
    command = [sys.executable, str(HERE / "replay.py"), "--base", server.url, "--prefix", PREFIX]
    command += ["--token", server.key, "--token2", server.second_key]
    command += ["--user", "admin", "--user2", SECOND_USER, "--group2", SECOND_GROUP]
    command += ["--cases", str(HERE / "cases"), "--against", str(golden)]
    command += ["--allow", str(HERE / "allow.json")]
    command += [f"--only={name}" for name in names]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    output, _, closing = result.stdout.rstrip().rpartition("\n")
    if " cases: " not in closing:
        raise RuntimeError(f"the replay failed:\n{result.stderr[-1000:]}")
    return parse_outcomes(output)


def parse_outcomes(output: str) -> dict[str, Outcome]:
    """Parses the output of the replay: a verdict starts a case, and the lines after it belong to it."""
    case_areas = read_case_areas()
    parsed: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        verdict = VERDICT.fullmatch(line)
        if verdict and verdict[2] in case_areas:
            lines = []
            parsed[verdict[2]] = verdict[1], lines
        lines.append(line)
    return {name: Outcome(verdict, "\n".join(text)) for name, (verdict, text) in parsed.items()}
