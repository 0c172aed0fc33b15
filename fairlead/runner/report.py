"""What a runner reports of itself: its phase, its engines, what they lack and what their machine has."""

import asyncio
import platform
from collections.abc import Mapping

import structlog

from fairlead.client import ClientError
from fairlead.core.machine.findings import Finding
from fairlead.core.objects import Object
from fairlead.core.validators import format_size
from fairlead.runner.api import RunnerApi
from fairlead.runner.engines.contract import Engine, EngineError, SizedEngine

CHECK_SECONDS = 300.0
RETRY_SECONDS = 5.0
MAX_MESSAGE = 1024
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Kubernetes and registries name them."""
CAPACITY_STEP = 64 << 20
"""Sizes are rounded down to it, so that they do not change with each update of the kernel."""

log = structlog.get_logger(__name__)


async def check_engines(engines: Mapping[str, Engine]) -> dict[str, list[Finding]]:
    """What each engine finds on this machine."""
    found: dict[str, list[Finding]] = {}
    for name, engine in engines.items():
        try:
            found[name] = list(await engine.check())
        except EngineError as error:
            found[name] = [Finding(name, error.message)]
    return found


def runner_status(found: Mapping[str, list[Finding]]) -> Object:
    """The phase of the runner: failed if no engine can run workspaces."""
    problems = [problem for name in found if (problem := describe_problem(found[name]))]
    if len(problems) < len(found):
        return {"phase": "Initialized", "reason": "", "message": "; ".join(problems)[:MAX_MESSAGE]}
    message = f"{'; '.join(problems) or 'it has no engine'}. Run `fairlead runner doctor` on its machine"
    return {"phase": "Failed", "reason": "EngineUnavailable", "message": message[:MAX_MESSAGE]}


def describe_problem(found: list[Finding]) -> str:
    """Why an engine cannot run workspaces; empty if it can."""
    return "; ".join(f"{each.subject}: {each.problem}" for each in found if each.problem and each.is_fatal)


def describe_engines(engines: Mapping[str, Engine], found: Mapping[str, list[Finding]]) -> list[Object]:
    """`status.engines`, the default first."""
    described: list[Object] = []
    for name, engine in engines.items():
        entry: Object = {"name": name}
        if problem := describe_problem(found.get(name, [])):
            entry["problem"] = problem[:MAX_MESSAGE]
        if isinstance(engine, SizedEngine):
            capacity = engine.capacity()
            entry["capacity"] = {
                "cpus": f"{capacity.cpus:g}",
                "memory": _round_size(capacity.memory_bytes),
                "disk": _round_size(capacity.disk_bytes),
            }
        described.append(entry)
    return described


def _round_size(size: int) -> str:
    return format_size(size - size % CAPACITY_STEP)


def describe_machine() -> dict[str, str]:
    """`status.labels`: the names are those of Kubernetes nodes."""
    machine = platform.machine()
    return {
        "kubernetes.io/arch": ARCHITECTURES.get(machine, machine),
        "kubernetes.io/hostname": platform.node(),
        "kubernetes.io/os": platform.system().lower(),
    }


async def report_runner(api: RunnerApi, engines: Mapping[str, Engine]) -> None:
    """Reports the status of the runner for ever."""
    while True:
        found = await check_engines(engines)
        status = {
            **runner_status(found),
            "engines": describe_engines(engines, found),
            "labels": describe_machine(),
        }
        try:
            current = (await api.get_runner()).get("status") or {}
            if any((current.get(name) or "") != value for name, value in status.items()):
                await api.report_runner(status)
        except ClientError as error:
            log.warning("the status of the runner could not be reported", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        await asyncio.sleep(CHECK_SECONDS)
