"""A web IDE: a port of the workspace on which an editor for the browser starts when a user opens it.

The option `webIDE` of the template's provider says which: `image` for what the image has, code-server or
openvscode-server, else the name of an npm package that has one of them. The package is installed once, into the home
folder of the user. The IDE has no password: its port is on the loopback of the workspace, and only who may use the
workspace reaches it from outside.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.core.objects import Object
from fairlead.core.waiting import end_tasks
from fairlead.core.workspaces import WEB_IDE
from fairlead.runner.desired import template_options
from fairlead.runner.engines.contract import (
    ByteStream,
    Engine,
    EngineError,
    ExecOptions,
    ListeningPort,
    Process,
    Reason,
)

PORT = 13337
LISTED = ListeningPort(port=PORT, address="127.0.0.1", process="web IDE")
PACKAGE = re.compile(r"(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,99}(@[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
START_SECONDS = 900.0
"""For the installation of the package, and until the IDE listens."""
POLL_SECONDS = 0.5
MAX_ERROR_BYTES = 4096
SCRIPT = """
folder=${HOME:-/tmp}/.local/share/fairlead/web-ide
mkdir -p "$folder" || exit 1
PATH=$PATH:$folder/node_modules/.bin
find_program() { command -v openvscode-server || command -v code-server; }
program=$(find_program)
if [ -z "$program" ] && [ "$1" != image ]; then
    command -v npm >/dev/null || { echo "the image has no npm, which installs $1" >&2; exit 1; }
    npm install --prefix "$folder" --no-audit --no-fund "$1" >"$folder/install.log" 2>&1 ||
        { tail -n 5 "$folder/install.log" >&2; exit 1; }
    program=$(find_program)
fi
case "$program" in
*/openvscode-server) set -- --host 127.0.0.1 --port "$2" --without-connection-token --default-folder "$PWD" ;;
*/code-server) set -- --auth none --bind-addr "127.0.0.1:$2" --disable-telemetry --disable-update-check "$PWD" ;;
*) echo "there is neither openvscode-server nor code-server in the image or the package" >&2; exit 1 ;;
esac
setsid "$program" "$@" >"$folder/ide.log" 2>&1 </dev/null &
"""


@dataclass(slots=True)
class WebIdes:
    """Those of all workspaces. One start of each is under way at a time, which all who wait for it share."""

    _starts: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def open(self, engine: Engine, uid: str, workspace: Object | None, port: int) -> ByteStream:
        """A connection to a port. If it is that of the web IDE, and nothing listens there, that is started before."""
        try:
            return await engine.open_port(uid, port)
        except EngineError:
            package = find_package(workspace)
            if port != PORT or not package:
                raise
        if uid not in self._starts:
            task = asyncio.create_task(_start(engine, uid, package), name=f"web IDE of {uid}")
            self._starts[uid] = task
            task.add_done_callback(lambda ended: self._forget(uid, ended))
        # Who waits may give up, as browsers do; the installation goes on.
        await asyncio.shield(self._starts[uid])
        return await engine.open_port(uid, port)

    def _forget(self, uid: str, ended: asyncio.Task[None]) -> None:
        self._starts.pop(uid, None)
        if not ended.cancelled():
            ended.exception()  # perhaps no request waits any more

    async def close(self) -> None:
        await end_tasks(*self._starts.values())


def find_package(workspace: Object | None) -> str:
    """What the template names; empty if it names nothing, or nothing that is understood."""
    value = template_options(workspace or {}).get(WEB_IDE)
    text = str((value.get("value") if isinstance(value, dict) else value) or "")
    return text if PACKAGE.fullmatch(text) else ""


def list_ports(workspace: Object | None, listening: Sequence[ListeningPort]) -> list[ListeningPort]:
    """The ports of a workspace, and that of its web IDE, also before it is opened."""
    found = [each for each in listening if each.port != PORT]
    return [LISTED, *found] if find_package(workspace) else list(listening)


async def _start(engine: Engine, uid: str, package: str) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            process = await engine.exec(uid, ["/bin/sh", "-c", SCRIPT, "web-ide", package, str(PORT)], ExecOptions())
            try:
                await _expect_success(process)
            finally:
                await process.kill()  # what is detached goes on
            await _wait_until_it_listens(engine, uid)
    except TimeoutError:
        raise _failure(f"it does not listen after {START_SECONDS:g} seconds") from None


async def _expect_success(process: Process) -> None:
    await process.stdin.close()
    errors = b""
    while data := await process.stderr.read(MAX_ERROR_BYTES):
        errors = (errors + data)[-MAX_ERROR_BYTES:]
    if await process.wait() != 0:
        raise _failure(" ".join(errors.decode(errors="replace").split()))


async def _wait_until_it_listens(engine: Engine, uid: str) -> None:
    while True:
        try:
            connection = await engine.open_port(uid, PORT)
        except EngineError:
            await asyncio.sleep(POLL_SECONDS)
            continue
        await connection.abort()
        return


def _failure(why: str) -> EngineError:
    log = "its logs are in ~/.local/share/fairlead/web-ide of the workspace"
    return EngineError(Reason.START_FAILED, f"the web IDE cannot be started: {why}; {log}")
