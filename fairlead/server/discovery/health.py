"""The health endpoints: /healthz and /livez if the process runs, /readyz if it can serve writes.

Each check also has its own path, such as `/readyz/store`, as in kube-apiserver.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Set

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError

TEXT = "text/plain; charset=utf-8"
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

HealthCheck = Callable[[], Awaitable[None]]
"""Raises an ApiError if the check fails."""


class HealthHandler:
    """The handler of the health endpoints. Liveness checks nothing; readiness needs all checks to pass."""

    def __init__(self, readiness_checks: Mapping[str, HealthCheck]) -> None:
        self._readiness_checks = readiness_checks

    async def __call__(self, call: Call) -> Reply:
        name, below, check = call.target.path.removeprefix("/").partition("/")
        checks: dict[str, HealthCheck] = {"ping": _ping, **(self._readiness_checks if name == "readyz" else {})}
        if f"/{name}" not in HEALTH_PATHS or (below and check not in checks):
            return Reply(404, b"404 page not found\n", TEXT)
        if below:
            return _single_check_reply(await _run_check(checks[check]))
        excluded = call.query.get("exclude", [])
        lines, failed = [], False
        for each, probe in checks.items():
            reason = "" if each in excluded else await _run_check(probe)
            failed = failed or bool(reason)
            passed = "excluded: ok" if each in excluded else "ok"
            lines.append(f"[-]{each} failed: {reason}" if reason else f"[+]{each} {passed}")
        if not failed and "verbose" not in call.query:
            return Reply(200, b"ok", TEXT)
        lines += _unknown_exclusions(set(excluded) - checks.keys())
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return Reply(503 if failed else 200, "\n".join(lines).encode() + b"\n", TEXT)


def _single_check_reply(reason: str) -> Reply:
    return Reply(503, reason.encode() + b"\n", TEXT) if reason else Reply(200, b"ok", TEXT)


def _unknown_exclusions(excluded: Set[str]) -> list[str]:
    if not excluded:
        return []
    names = ",".join(map(json.dumps, sorted(excluded)))
    return [f"warn: some health checks cannot be excluded: no matches for {names}"]


async def _ping() -> None:
    return None


async def _run_check(check: HealthCheck) -> str:
    try:
        await check()
    except ApiError as error:
        return error.message
    return ""
