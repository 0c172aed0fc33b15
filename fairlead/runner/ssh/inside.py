"""What an image has that SSH needs. Found by one command inside; an image without a shell has nothing of it."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.runner.engines.contract import ByteReader, Engine, EngineError, ExecOptions, Reason

PROBE_SECONDS = 20.0
NO_SHELL = (126, 127)
"""Exit codes if /bin/sh cannot be started, or has no programs."""
MAX_OUTPUT_BYTES = 256 * 1024
USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
PROBE = r"""
find_program() {
    for path; do if [ -x "$path" ]; then printf '%s' "$path"; return; fi; done
}
user=$(id -un 2>/dev/null)
printf '%s\0' "$user"
printf '%s\0' "$(sed -n "s/^$user:.*://p" /etc/passwd 2>/dev/null)"
printf '%s\0' "$(if [ -d "${HOME:-}" ]; then printf '%s' "$HOME"; fi)"
printf '%s\0' "$(find_program /usr/sbin/sshd /usr/local/sbin/sshd /usr/bin/sshd /sbin/sshd)"
printf '%s\0' "$(find_program /usr/lib/openssh/sftp-server /usr/lib/ssh/sftp-server \
    /usr/libexec/openssh/sftp-server /usr/libexec/sftp-server /usr/local/libexec/sftp-server)"
cat /proc/self/environ
"""
DEFAULT_SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Inside:
    """Paths are empty if there is no such program, `user` if the user has no name."""

    user: str = ""
    home: str = ""
    shell: str = DEFAULT_SHELL
    sshd: str = ""
    sftp_server: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


async def find_inside(engine: Engine, uid: str) -> Inside:
    """Raises EngineError if the workspace does not run."""
    process = await engine.exec(uid, ("/bin/sh", "-c", PROBE), ExecOptions())
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await process.stdin.close()
            output, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            code = await process.wait()
    except TimeoutError:
        raise EngineError(Reason.NOT_RUNNING, "the workspace does not respond; try again") from None
    finally:
        await process.kill()
    if code in NO_SHELL:
        return Inside()
    if code != 0:
        raise EngineError(Reason.NOT_RUNNING, f"a command in the workspace failed with code {code}; try again")
    return parse_probe(output)


def parse_probe(output: bytes) -> Inside:
    fields = [each.decode(errors="replace") for each in output.split(b"\0")]
    user, shell, home, sshd, sftp_server, *variables = (*fields, *("" for _ in range(5 - len(fields))))
    pairs = (each.partition("=") for each in variables)
    environment = {name: value for name, separator, value in pairs if name and separator}
    valid_user = user if USER_NAME.fullmatch(user) else ""
    return Inside(
        user=valid_user,
        home=home,
        shell=shell or DEFAULT_SHELL,
        sshd=sshd,
        sftp_server=sftp_server,
        environment=environment,
    )


async def _read(reader: ByteReader) -> bytes:
    """All output; what exceeds the limit is dropped."""
    parts: list[bytes] = []
    size = 0
    while data := await reader.read(65536):
        size += len(data)
        if size <= MAX_OUTPUT_BYTES:
            parts.append(data)
    return b"".join(parts)
