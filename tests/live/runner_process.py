"""`fairlead runner start` as a real process, which live tests kill and start again."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.harness.fork_server import ForkedProcess, fork_program
from tests.harness.server_process import Server, server_environment
from tests.live.workspace_setup import M, create_object

FAKE_ENGINE = "tests.runner.fake_engine:create_engine"
PROCESS_ENGINE = "tests.runner.process_engine:create_engine"


@dataclass(slots=True)
class RunnerProcess:
    """`fairlead runner start`, which can be killed and started again on the same state folder."""

    server: Server
    folder: Path
    engine: str = FAKE_ENGINE
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    name: str = "local"
    processes: list[ForkedProcess] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        return [
            *("runner", "start", self.name, "--server", self.server.url, "--json"),
            *("--ca-file", self.server.ca_file, "--key-file", str(self.folder / "key")),
            *("--state", str(self.folder / "state"), "--engine", self.engine, *self.flags),
        ]

    def start(self) -> None:
        environment = {**server_environment(), **self.environment}
        with open(self.folder / "log", "ab") as log:
            process = fork_program("fairlead", self.arguments, environment, log)
        self.processes.append(process)
        line = process.stdout.readline()
        assert line and json.loads(line)["runner"] == self.name, self.read_log()

    def kill(self) -> None:
        self.processes[-1].kill()
        self.processes[-1].wait(60)

    def stop(self) -> int:
        self.processes[-1].send_signal(signal.SIGTERM)
        return self.processes[-1].wait(60)

    def read_log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        for process in self.processes:
            process.close()


@contextmanager
def running_runner(
    server: Server,
    admin: httpx.Client,
    folder: Path,
    engine: str = FAKE_ENGINE,
    environment: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = (),
) -> Iterator[RunnerProcess]:
    """Creates the project `web` and the runner `local`, and starts its process."""
    create_object(admin, f"{M}/projects", "Project", "web")
    runner = create_runner(server, admin, folder, engine)
    runner.environment, runner.flags = environment or {}, flags
    try:
        runner.start()
        yield runner
    finally:
        runner.close()


def create_runner(
    server: Server, admin: httpx.Client, folder: Path, engine: str = FAKE_ENGINE, name: str = "local"
) -> RunnerProcess:
    """A new Runner, whose process is not started."""
    folder.mkdir()
    create_object(admin, f"{M}/runners", "Runner", name)
    key = admin.get(f"{M}/runners/{name}/accesskey").json()["accessKey"]
    (folder / "key").write_text(key)
    (folder / "key").chmod(0o600)
    return RunnerProcess(server, folder, engine, name=name)
