"""What of a workspace is lost when it moves to another runner, which fetches its source again.

That is what no remote of its repository has. Git in the workspace says it, as its user: no
program of the machine reads the files of an untrusted repository, and what it says deceives its own users at most.
"""

import asyncio

from fairlead.runner.engines.contract import Engine, EngineError, ExecOptions, FolderSource, Reason, Source

SCRIPT = """
export LC_ALL=C
if ! command -v git >/dev/null; then
    [ -z "$(ls -A)" ] || echo "git no"
elif ! top=$(git rev-parse --show-toplevel 2>/dev/null); then
    [ -z "$(ls -A)" ] || echo "repository no"
else
    cd "$top" || exit 1
    changes=$(git status --porcelain --untracked-files=normal) || exit 1
    echo "changes $(printf %s "$changes" | grep -c '')"
    head=$(git rev-parse --quiet --verify HEAD)
    echo "commits $(git rev-list --count $head --branches --not --remotes)"
    echo "stashes $(git stash list | grep -c '')"
fi
echo "end"
"""
SECONDS = 20.0
MAX_OUTPUT = 4096
COUNTED = {
    "changes": "files with changes that are not committed",
    "commits": "commits that are not pushed",
    "stashes": "stashes",
}
NOT_COUNTED = {
    "git": "the files in the work folder: the image has no git that could say what is pushed",
    "repository": "the files in the work folder, which are in no git repository",
}
FOLDER = "the files in the work folder, which come from a folder of the machine of the runner"


async def find_losses(engine: Engine, uid: str, source: Source) -> list[str]:
    """What would be lost, as sentences without an end. The workspace has to run. Raises EngineError."""
    if isinstance(source, FolderSource):
        return [FOLDER]
    try:
        async with asyncio.timeout(SECONDS):
            return parse_losses(await _run_script(engine, uid))
    except TimeoutError as error:
        message = f"git in the workspace did not say within {SECONDS:g} seconds what is not pushed"
        raise EngineError(Reason.COMMAND_FAILED, message) from error


async def _run_script(engine: Engine, uid: str) -> str:
    process = await engine.exec(uid, ("/bin/sh", "-c", SCRIPT), ExecOptions())
    try:
        await process.stdin.close()
        output = b""
        while len(output) < MAX_OUTPUT and (data := await process.stdout.read(MAX_OUTPUT)):
            output += data
        return output.decode(errors="replace")
    finally:
        await process.kill()


def parse_losses(output: str) -> list[str]:
    """Raises EngineError if the output is not complete."""
    *lines, last = output.splitlines() or [""]
    if last != "end":
        raise EngineError(Reason.COMMAND_FAILED, "git in the workspace does not say what is not pushed")
    losses = []
    for line in lines:
        name, _, value = line.partition(" ")
        if name in NOT_COUNTED:
            losses.append(NOT_COUNTED[name])
        elif name in COUNTED and value != "0":
            losses.append(f"{COUNTED[name]}: {value[:12] or 'unknown'}")
    return losses
