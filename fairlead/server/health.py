"""/healthz, /livez and /readyz: is the process alive, and could it take a write now?"""

from collections.abc import Awaitable, Callable, Mapping

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError

TEXT = "text/plain; charset=utf-8"
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

Probe = Callable[[], Awaitable[None]]
"""Raises an ApiError while something is wrong."""


class Health:
    """What the health paths answer. Being alive needs nothing; being ready needs every probe to pass."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = probes

    async def __call__(self, call: Call) -> Reply:
        name = call.target.path.strip("/")
        results = [("ping", "")]
        if name == "readyz":
            results += [(each, await _outcome(probe)) for each, probe in self._probes.items()]
        failed = any(reason for _, reason in results)
        if not failed and "verbose" not in call.query:
            return Reply(200, b"ok", TEXT)
        lines = [f"[-]{each} failed: {reason}" if reason else f"[+]{each} ok" for each, reason in results]
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return Reply(503 if failed else 200, "\n".join(lines).encode() + b"\n", TEXT)


async def _outcome(probe: Probe) -> str:
    try:
        await probe()
    except ApiError as error:
        return error.message
    return ""
