"""A real PostgreSQL for tests, on a free loopback port and in a temporary folder.

`open_postgres` opens the store of a folder: a schema in one server that all tests share.
PostgreSQL refuses to run as root, so under root it runs as the user of its package.
"""

import atexit
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from fairlead.storage.contract import Store
from fairlead.storage.postgres import PostgresStore
from tests.harness.free_ports import free_port

USER, PASSWORD, DATABASE = "fairlead", "correct horse", "store"
START_SECONDS = 30.0

# The data must survive a killed server, not a crash of the machine.
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


def find_missing_reason() -> str | None:
    """Returns why PostgreSQL cannot run, or None."""
    return None if find_programs() else "PostgreSQL is not installed; install Debian's package `postgresql`"


def find_programs() -> Path | None:
    """Returns the folder of the newest version from Debian's packages, or of the one on the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda found: int(found.parts[-3]))
    found = versions[-1] if versions else shutil.which("initdb")
    return Path(found).parent if found else None


def require_postgres() -> None:
    """Skips the test without PostgreSQL, or fails it in CI."""
    if reason := find_missing_reason():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


class PostgresServer:
    def __init__(
        self,
        settings: dict[str, str] | None = None,
        authentication: str = "scram-sha-256",
        files: dict[str, str] | None = None,
        folder: Path | None = None,
        wal: Path | None = None,
    ) -> None:
        """`files` are written to its data folder, like certificates. `folder` and `wal` are empty folders for the data
        and the write-ahead log, which are removed in the end."""
        programs = find_programs()
        assert programs is not None
        self._programs = programs
        self._settings = FAST if settings is None else settings
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fairlead-postgres-"))
        self._wal = wal
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self._initialise(authentication)
            for name, content in (files or {}).items():
                self._chown(self.folder / "data" / name, content)
            self.start()
        except BaseException:
            # No caller can end it yet, also after a timeout or Ctrl-C while it starts.
            self.remove()
            raise

    @property
    def url(self) -> str:
        return f"postgres://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        """Starts the server and waits until it is ready."""
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        options += ["-clisten_addresses=127.0.0.1", f"-cport={self.port}", "-cunix_socket_directories="]
        with (self.folder / "log").open("ab") as log:
            command = self._as_owner("postgres", "-D", str(self.folder / "data"), *options)
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Waits until the server is ready, also while it recovers from a crash."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        check = self._as_owner("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port))
        while subprocess.run(check, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL does not start: " + (self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT shuts it down without waiting for clients. SIGQUIT is a crash: it recovers when it starts again."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stops all processes, like a network outage: connections stay open without responses."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def sql(self, statement: str) -> str:
        command = [str(self._programs / "psql"), "-qtA", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def remove(self) -> None:
        """Ends the server in any state, also paused, and removes its folders."""
        if self.process is not None and self.process.poll() is None:
            with suppress(OSError):  # one of them may end meanwhile
                self.resume()
        self.stop()
        for folder in filter(None, (self.folder, self._wal)):
            shutil.rmtree(folder, ignore_errors=True)

    def _initialise(self, authentication: str) -> None:
        password = self.folder / "password"
        self._chown(password, PASSWORD)
        self._chown(self.folder)
        options = ["--no-sync", "-E", "UTF8", "--locale=C", "-A", authentication, "-U", USER, f"--pwfile={password}"]
        if self._wal is not None:
            self._chown(self._wal)
            options.append(f"--waldir={self._wal}")
        self._run("initdb", "-D", str(self.folder / "data"), *options)
        # Without a server: it runs for this one statement.
        create = self._as_owner("postgres", "--single", "-D", str(self.folder / "data"), "postgres")
        subprocess.run(create, input=f"CREATE DATABASE {DATABASE}\n".encode(), check=True, capture_output=True)

    def _chown(self, path: Path, content: str | None = None) -> None:
        """Gives a file to the user that the server runs as, readable only by that user."""
        if content is not None:
            path.touch(mode=0o600)
            path.write_text(content)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(path, owner.pw_uid, owner.pw_gid)

    def _run(self, *command: str) -> None:
        subprocess.run(self._as_owner(*command), check=True, capture_output=True)

    def _as_owner(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._programs / program), *arguments]
        if os.geteuid() != 0:
            return command
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--", *command]

    def _pids(self) -> list[int]:
        """The server and the processes that it has started for its connections."""
        assert self.process is not None
        parent = self.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]


@cache
def shared_server() -> PostgresServer:
    # Password authentication is slow by design, and tests open hundreds of stores.
    server = PostgresServer(authentication="trust")
    atexit.register(server.remove)
    return server


def schema_for(folder: Path) -> str:
    return "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:20]


def address_for(folder: Path) -> str:
    """Returns the address of the store of a folder, in the shared server."""
    require_postgres()
    return f"{shared_server().url}?schema={schema_for(folder)}"


async def open_postgres(folder: Path) -> Store:
    return await PostgresStore.open(address_for(folder))
