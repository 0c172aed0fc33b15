"""Runs commands inside workspaces."""

from dataclasses import dataclass

from fairlead.runner.engines.contract import Engine, ExecOptions


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    output: str
    errors: str


async def run_inside(engine: Engine, uid: str, script: str, options: ExecOptions | None = None) -> Outcome:
    """Runs a shell script to its end."""
    process = await engine.exec(uid, ["/bin/sh", "-c", script], options or ExecOptions())
    try:
        await process.stdin.close()
        output = await read_all(process.stdout)
        errors = await read_all(process.stderr)
        return Outcome(await process.wait(), output.decode(), errors.decode())
    finally:
        await process.kill()


async def read_all(reader: object) -> bytes:
    """Reads up to the end."""
    parts: list[bytes] = []
    while data := await reader.read(1 << 16):  # type: ignore[attr-defined]
        parts.append(data)
    return b"".join(parts)
