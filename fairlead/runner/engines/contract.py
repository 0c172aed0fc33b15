"""The contract between the runner and its engines.

The runner decides what should run; an engine makes it so on this machine. The uid of the workspace object identifies
everything that an engine keeps. Names are for messages only: a workspace that is deleted and created again under the
same name has another uid, and gets nothing of the first one.

All methods may be called again after a failure or a restart. The runner calls `up`, `stop`, `delete`, `adopt`
and `restore` for one uid one after the other, and all others at any time.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fairlead.core.machine.findings import Finding

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# --- what is wanted ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GitSource:
    """A repository. A commit wins over a branch; with neither, the default branch of the repository is used."""

    url: str
    branch: str = ""
    commit: str = ""
    subfolder: str = ""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder of the runner's machine, which is copied. Refused unless the runner allows that folder."""

    path: str


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image without a repository: the work folder is empty at first."""

    image: str


Source = GitSource | FolderSource | ImageSource

GIT_USER, GIT_TOKEN = "FAIRLEAD_GIT_USER", "FAIRLEAD_GIT_TOKEN"
GIT_SSH_KEY, GIT_KNOWN_HOSTS = "FAIRLEAD_GIT_SSH_KEY", "FAIRLEAD_GIT_KNOWN_HOSTS"
COMMANDS_STEP = "LifecycleCommands"
"""The step of an `up` in which commands of the repository run in the container. Nothing of it is a build any more."""
GIT_CREDENTIALS = frozenset({GIT_USER, GIT_TOKEN, GIT_SSH_KEY, GIT_KNOWN_HOSTS})
"""Secrets that are for the clone only: the workspace does not get them."""
GIT_SOCKET = "git"
"""The name of the socket on which `git` in a workspace asks for credentials."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits of one workspace, builds included. None means the default of the runner, never unlimited."""

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """With which images of a registry are pulled, or those below a path of it."""

    place: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """What should run. Everything but `source` and `uid` may change between two calls of `up`."""

    uid: str
    namespace: str
    name: str
    owner: str
    source: Source
    clone_strategy: str = ""
    """Which part of the history of a repository is cloned: `blobless`, `treeless`, `shallow`; empty for all of it."""
    dev_container: str = ""
    """Text of a devcontainer.json in the place of that of the source. It is not more trusted than that."""
    dev_container_path: str = ""
    """Path of the devcontainer.json below the folder of the source. Empty: the default places."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Given to the workspace as files and to its lifecycle commands as variables, and masked in logs. They are never
    part of a command line, an image or the configuration of a container."""
    commit_name: str = ""
    """Name and address of the owner, for commits. Empty: they are not known."""
    commit_email: str = ""
    dotfiles: str = ""
    """URL of the owner's repository with dotfiles. It takes precedence over the option of the template."""
    git_path_hosts: Sequence[str] = ()
    """Hosts for which git has to name the repository when it asks for credentials."""
    registries: Sequence[RegistryCredentials] = field(default=(), repr=False)
    """They are not to be stored, and not for the workspace."""
    limits: Limits = Limits()
    permissions: frozenset[str] = frozenset()
    """What the template allows beyond the default, for example `privileged` or `mounts`. The runner has checked that
    its operator honours it."""
    is_trusted: bool = False
    """Whether administrators trust the template. Otherwise it chooses neither permissions nor a place."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the provider in the template, without limits and permissions."""
    secret_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the provider whose values come from secrets. They are not to be stored, and not for the workspace."""
    template_hash: str = ""
    """Changes with everything in the template that needs a new container. `EngineStatus` returns it. `up` replaces a
    container with another hash, unless it `keeps_container`."""
    keeps_container: bool = False
    """Start the container that is there, also if it has another hash: no user has asked for the template."""
    recreate: bool = False
    """Replace the container, and keep the work folder."""
    reset: bool = False
    """Replace the container and the work folder: fetch the source again."""
    is_prebuild: bool = False
    """Build the image for other workspaces of the repository, and leave nothing else behind. It has no secrets but
    those of the clone."""
    takes_snapshot: bool = False
    """If the container is replaced, keep what it has outside of volumes and the work folder."""
    discards_home: bool = False
    """What is kept of the home folder, and in snapshots, is of an earlier owner, and not for this one."""
    installation: str = ""
    """The ID of the server's installation. Everything that outlives the state folder of the engine, and could be found
    by the runner of another installation, is labelled with it."""

    def accepts(self, template_hash: str) -> bool:
        """Whether a container that was created from this template is to be used. Empty: there is none."""
        if self.recreate or self.reset:
            return False
        return template_hash == self.template_hash or (self.keeps_container and bool(template_hash))


# --- what is ----------------------------------------------------------------------------------------------------------


class ContainerState(StrEnum):
    """The values of `status.lastWorkspaceStatus`."""

    NOT_FOUND = "NotFound"
    STOPPED = "Stopped"
    BUSY = "Busy"
    RUNNING = "Running"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine observes. Fields that are unknown or meaningless in this state are empty or None."""

    state: ContainerState
    cause: str = ""
    """Why it is not running, as one word and an explanation: `OutOfMemory: ...`, `Exited: code 137`, `Stopped`. While
    it runs, what happened to it: `OutOfMemory: ...`."""
    started_at: datetime | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    user: str = ""
    """The user of sessions inside."""
    folder: str = ""
    """The work folder, as sessions inside see it."""
    is_recovery: bool = False
    """The build failed, and a container with the sources but without the wanted tools runs in its place."""
    template_hash: str = ""
    """That of the spec with which the container was created."""
    task_id: str = ""
    """The task that created the container, or the one under way."""
    installation: str = ""
    """The installation in its labels, if the state folder of the engine does not know the workspace. Empty: it is of
    this state folder, and so of this installation."""


MAX_MESSAGE_BEGIN, MAX_MESSAGE_END = 3000, 1000
"""Characters of a message that are kept. It is in the journal, in the log and in the status of the workspace, and may
quote what a repository or a registry said, which can be megabytes."""


class EngineError(Exception):
    """A task failed. `reason` is a word for conditions, `message` a sentence for people, `step` where it happened."""

    def __init__(self, reason: str, message: str, step: str = "") -> None:
        shortened = shorten_message(message)
        super().__init__(shortened)
        self.reason = reason
        self.message = shortened
        self.step = step


def shorten_message(message: str) -> str:
    left_out = len(message) - MAX_MESSAGE_BEGIN - MAX_MESSAGE_END
    if left_out <= 0:
        return message
    return f"{message[:MAX_MESSAGE_BEGIN]} [{left_out} characters left out] {message[-MAX_MESSAGE_END:]}"


class Reason(StrEnum):
    """The values of `EngineError.reason` that every engine uses."""

    SOURCE_REFUSED = "SourceRefused"
    CLONE_FAILED = "CloneFailed"
    CONFIGURATION_INVALID = "ConfigurationInvalid"
    POLICY_VIOLATION = "PolicyViolation"
    PLATFORM_MISMATCH = "PlatformMismatch"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    BUILD_FAILED = "BuildFailed"
    START_FAILED = "StartFailed"
    COMMAND_FAILED = "LifecycleCommandFailed"
    STEP_TIMED_OUT = "StepTimedOut"
    DISK_FULL = "DiskFull"
    """That of the runner's machine."""
    WORKSPACE_DISK_FULL = "WorkspaceDiskFull"
    SNAPSHOT_FAILED = "SnapshotFailed"
    NOT_RUNNING = "NotRunning"
    ENGINE_UNAVAILABLE = "EngineUnavailable"


def invalid_configuration(message: str) -> EngineError:
    return EngineError(Reason.CONFIGURATION_INVALID, message)


def policy_violation(message: str) -> EngineError:
    return EngineError(Reason.POLICY_VIOLATION, message)


# --- tasks ------------------------------------------------------------------------------------------------------------


class TaskContext(Protocol):
    """The task on whose behalf an engine works. The runner implements it."""

    @property
    def task_id(self) -> str: ...

    @property
    def is_cancelled(self) -> bool:
        """Whether this task must not go on: a `stop` or `delete` takes its place.

        A task that is cancelled gets `asyncio.CancelledError` in its current await. If `is_cancelled` is true, the
        engine ends the processes of the task before it raises that on. If it is false, the runner itself is ending:
        the engine leaves the processes alone, and the next runner calls `adopt`.
        """
        ...

    def step(self, name: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Runs the block as a named step. When it takes longer, the block is cancelled and the step raises
        `EngineError(STEP_TIMED_OUT)` with its name; `is_cancelled` is true in that block from then on. An EngineError
        without a step that leaves the block gets this step's name."""
        ...

    def log(self, data: bytes) -> None:
        """Appends to the log of the task. Secrets are masked already."""
        ...


# --- sessions ---------------------------------------------------------------------------------------------------------


class ByteReader(Protocol):
    async def read(self, n: int = -1, /) -> bytes:
        """At most n bytes, as soon as there are some; b"" at the end."""
        ...


class ByteWriter(Protocol):
    async def write(self, data: bytes, /) -> None:
        """Waits until the other side has taken most of it. Bytes after its end are dropped."""
        ...

    async def close(self) -> None:
        """Sends the end; reading goes on."""
        ...


class ByteStream(Protocol):
    """A connection to a port inside."""

    @property
    def reader(self) -> ByteReader: ...

    @property
    def writer(self) -> ByteWriter: ...

    async def abort(self) -> None:
        """Closes both directions at once."""
        ...


def is_variable_name(text: str) -> bool:
    """Whether it is safe as the name of an environment variable in the text of a shell script."""
    return _VARIABLE_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ExecOptions:
    user: str = ""
    """Empty: the user of sessions, `EngineStatus.user`."""
    tty: bool = False
    columns: int = 80
    rows: int = 24
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = ""
    """Empty: the work folder."""


class Process(Protocol):
    """A process inside a workspace. With a terminal, `stderr` is empty and `stdout` has everything."""

    @property
    def stdin(self) -> ByteWriter: ...

    @property
    def stdout(self) -> ByteReader: ...

    @property
    def stderr(self) -> ByteReader: ...

    async def resize(self, columns: int, rows: int) -> None:
        """Without a terminal, nothing happens."""
        ...

    async def send_signal(self, name: str) -> None:
        """Sends a signal, `INT` or `TERM` for example, to the process. Unknown names are ignored."""
        ...

    async def wait(self) -> int:
        """The exit code: 128 plus the number of the signal that ended it."""
        ...

    async def kill(self) -> None:
        """Ends the process and those that it started, except for those that detached themselves from it. Also removes
        what the engine keeps for it; call it at the end of every session, also after `wait`."""
        ...


@runtime_checkable
class Transferable(Protocol):
    """A `Process` or `ByteStream` whose bytes pass through descriptors, which another process can use in its place."""

    def take_descriptors(self) -> list[int]:
        """The descriptors, which the caller owns from now on: of a port its socket, of a terminal its host's side, of
        other processes stdin, stdout and stderr. Reading and writing here ends with it; all else goes on."""
        ...


@dataclass(frozen=True, slots=True)
class ListeningPort:
    port: int
    address: str
    process: str = ""


# --- activity ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TerminalSample:
    """A terminal inside. Of both times, only changes matter."""

    input_at: float
    """When a process last read what was typed."""
    output_at: float
    has_job: bool
    """A program runs in the foreground, not only a shell that waits for input."""


@dataclass(frozen=True, slots=True)
class ActivitySample:
    """What the kernel knows about the use of a running workspace, without any content. All numbers only grow; what an
    engine cannot measure is empty or 0."""

    started_at: datetime | None = None
    cpu_seconds: float = 0.0
    """CPU time of all processes, those that have ended included."""
    terminals: Mapping[str, TerminalSample] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each connection from outside to a port that the workspace listens on."""
    newest_write: float = 0.0
    """The latest change below the work folder."""


# --- engines ----------------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """One way to run workspaces. Methods raise `EngineError`; all other exceptions are faults of the engine."""

    @property
    def name(self) -> str:
        """The name of the provider in templates that selects this engine."""
        ...

    async def check(self) -> Sequence[Finding]:
        """What this machine lacks, for `fairlead runner doctor`."""
        ...

    async def close(self) -> None:
        """Ends what the engine runs for itself, when the runner stops. Workspaces go on running."""
        ...

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        """Makes the workspace run. When it runs already as `spec` wants, nothing happens."""
        ...

    async def stop(self, uid: str, task: TaskContext) -> None:
        """Ends all processes of the workspace, and keeps its files. A workspace that does not run stays as it is."""
        ...

    async def delete(self, uid: str, task: TaskContext) -> None:
        """Removes everything that the engine has of this uid: in every state, and if there is nothing."""
        ...

    async def status(self, uid: str) -> EngineStatus:
        """Cheap: it may be called several times per second."""
        ...

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        """Everything that this engine has for this runner, by uid, also what the server no longer knows.

        That includes what the state folder does not know, and what is no complete workspace (a network without a
        container, a Secret without a Pod): the runner calls `delete` for what the server does not have. Such things are
        found by labels, and returned with the `installation` in them, since runners of other installations may have
        the same name. What has no such label, and is not known to the state folder, is left out."""
        ...

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        """After a restart of the runner: goes on with the `up` that was under way, up to its end. `task` has the id of
        that `up`. False if there is nothing to go on with; then `up` must be called anew."""
        ...

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        """Starts a process in a running workspace; the image needs no sshd. An empty command is the user's shell."""
        ...

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        """TCP ports that processes of the workspace listen on."""
        ...

    async def open_port(self, uid: str, port: int) -> ByteStream:
        """Connects to the port on the workspace's own 127.0.0.1."""
        ...


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a machine has for all workspaces together."""

    cpus: float
    memory_bytes: int
    disk_bytes: int


@runtime_checkable
class SizedEngine(Protocol):
    """An engine that knows the machine on which its workspaces run."""

    def capacity(self) -> Capacity: ...


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A socket of the runner, and its path for programs in the workspace."""

    socket: socket.socket
    path: str


@runtime_checkable
class SocketEngine(Protocol):
    """An engine whose workspaces can connect to sockets of the runner."""

    async def listen_port(self, uid: str, port: int) -> socket.socket:
        """A socket that listens on the workspace's own 127.0.0.1; 0 is for any port."""
        ...

    async def listen(self, uid: str, name: str) -> ListeningSocket:
        """A socket that listens, and that the user of sessions in the workspace can connect to, and no other but root
        there. It takes the place of an earlier one of that name."""
        ...


def find_sockets(engine: object) -> SocketEngine | None:
    """The engine, if it is one with sockets."""
    return engine if isinstance(engine, SocketEngine) else None


@runtime_checkable
class ServiceEngine(Protocol):
    """An engine whose workspaces may be several services."""

    async def read_service_log(self, uid: str, service: str) -> bytes:
        """The last that a service has printed."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a container had outside of volumes and the work folder when another one took its place."""

    id: str
    created_at: datetime
    size: int
    """In bytes."""


def describe_missing_snapshot(snapshot: str, names: Sequence[str]) -> str:
    has = f"it has {', '.join(names)}" if names else "it has none"
    return f"the workspace has no snapshot {snapshot[:100]!r}; {has}"


@runtime_checkable
class SnapshotEngine(Engine, Protocol):
    """An engine that takes snapshots (`WorkspaceSpec.takes_snapshot`), and restores them."""

    async def list_snapshots(self, uid: str) -> Sequence[Snapshot]:
        """The newest first. The workspace need not run."""
        ...

    async def restore(self, uid: str, snapshot: str, path: str, task: TaskContext) -> None:
        """Copies what a snapshot has at an absolute path into the running container. It starts none."""
        ...

    async def delete_snapshot(self, uid: str, snapshot: str) -> None:
        """Deletes a snapshot for ever. The workspace need not run."""
        ...


@runtime_checkable
class MaintainedEngine(Protocol):
    """An engine that looks after something as long as the runner runs."""

    async def maintain(self) -> None:
        """Never returns. It handles its own errors: one that it raises ends the runner."""
        ...


@runtime_checkable
class MeasuringEngine(Protocol):
    """An engine that knows what its workspaces do. Those of other engines do not fall asleep for lack of activity."""

    async def measure(self, uid: str) -> ActivitySample | None:
        """None if the workspace does not run. Called every half minute: it starts no process, neither here nor in the
        workspace, and follows no path that the workspace controls."""
        ...
