"""A server of git repositories over SSH, on a machine of its own: it knows some keys, and runs git's own programs.

`GitServer.certificate` is its line in `known_hosts`.
"""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import asyncssh

from tests.runner.harness.git_server import GitServer
from tests.runner.harness.other_machine import TEST_NET_3, other_machine
from tests.runner.harness.root_programs import HARNESS_VARIABLE

PORT = 22
PROGRAMS = ("git-upload-pack", "git-receive-pack")


def ssh_url(server: GitServer, name: str) -> str:
    return f"ssh://git@{server.host}/{name}"


def create_key(file: Path) -> str:
    """Writes a private key, and returns the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
    return file.with_name(f"{file.name}.pub").read_text().strip()


@contextmanager
def running_git_ssh_server(number: int, folder: Path, authorized: list[str]) -> Iterator[GitServer]:
    """`authorized` are the public keys that may read and write all repositories."""
    folder.mkdir()
    host_key = folder.with_name("git-host-key")
    public_key = create_key(host_key)
    keys = folder.with_name("git-authorized-keys")
    keys.write_text("\n".join(authorized))
    with (
        other_machine("gits", number, TEST_NET_3) as machine,
        machine.serve(__name__, str(folder), str(host_key), str(keys)),
    ):
        yield GitServer(machine.address, folder, f"{machine.address} {public_key}")


async def run_git(folder: Path, process: "asyncssh.SSHServerProcess[bytes]") -> None:
    program, _, path = (process.command or "").partition(" ")
    if program not in PROGRAMS:
        process.exit(1)
        return
    repository = folder / shlex.split(path)[0].strip("/")
    child = await asyncio.create_subprocess_exec(
        *("git", program.removeprefix("git-"), str(repository)),
        env={**os.environ, HARNESS_VARIABLE: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await process.redirect(child.stdin, child.stdout, child.stderr)
    process.exit(await child.wait())


async def serve(address: str, folder: Path, host_key: str, authorized: str) -> None:
    await asyncssh.listen(
        address,
        PORT,
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        process_factory=partial(run_git, folder),
        encoding=None,
    )
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
