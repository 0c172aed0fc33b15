"""Fixtures: `fairlead` as a process that ends with its test, and the CLI in process with a fake server."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates, ensure_certificates
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer, running_fake_server

ROOT = Path(__file__).resolve().parents[2]

TIMEOUT_SECONDS = 180.0

Fairlead = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def logging_configurations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Arguments of `configure_logging`, which is replaced: loggers of this process would keep a closed stream."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr("fairlead.core.log.configure_logging", lambda *arguments: calls.append(arguments))
    return calls


@pytest.fixture
def fairlead() -> Iterator[Fairlead]:
    """`fairlead("up", "--json", FAIRLEAD_LOG_LEVEL="debug")` starts the command with piped output."""
    processes: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}

    def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        # Kills a process that never prints the expected line, which would block the test.
        timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        timer.daemon = True
        timer.start()
        timers.append(timer)
        return process

    yield start
    for timer in timers:
        timer.cancel()
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def fake(certificates: Certificates) -> Iterator[FakeServer]:
    with running_fake_server(certificates) as server:
        yield server


@pytest.fixture
def cli(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI without a login."""
    return CliFixture(tmp_path, fake, monkeypatch)


@pytest.fixture
def user(cli: CliFixture) -> CliFixture:
    """The CLI with a login as the user alice."""
    cli.save_login()
    cli.fake.on_self()
    return cli
