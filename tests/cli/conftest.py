"""Real `fairlead` processes, started by a test and surely ended with it; and commands typed at a server of paper."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates, ensure_certificates
from tests.harness.cli import CliFixture
from tests.harness.fake_server import FakeServer, serving

ROOT = Path(__file__).resolve().parents[2]

LONGEST = 60.0

Fairlead = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def fairlead() -> Iterator[Fairlead]:
    """`fairlead("up", "--json", FAIRLEAD_LOG_LEVEL="debug")` starts the command; its output is there to be read."""
    started: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []
    ours = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}

    def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=ours | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        # Whoever reads a line that never comes would wait for ever.
        timer = threading.Timer(LONGEST, process.kill)
        timer.daemon = True
        timer.start()
        timers.append(timer)
        return process

    yield start
    for timer in timers:
        timer.cancel()
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def fake(certificates: Certificates) -> Iterator[FakeServer]:
    with serving(certificates) as server:
        yield server


@pytest.fixture
def cli(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """A person without any login yet."""
    return CliFixture(tmp_path, fake, monkeypatch)


@pytest.fixture
def user(cli: CliFixture) -> CliFixture:
    """A person with a login, whom the server knows as alice."""
    cli.keep()
    cli.fake.on_self()
    return cli
