"""Fetches the source of a workspace into its claim, and reads the devcontainer.json there.

Both happen in a Pod of their own, because the image of the workspace is known only afterwards. Git runs in its init
container, as the engine `devcontainer` runs it in its sandbox: with no configuration but its own, the protocol of the
source only, without hooks and submodules.
"""

from base64 import b64decode

from fairlead.core.objects import Object
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.configuration import MAX_BYTES
from fairlead.runner.engines.kubernetes.line_log import LineLog
from fairlead.runner.engines.kubernetes.manifests import CLONE, CONFIGURATION, Plan, build_source_pod
from fairlead.runner.engines.kubernetes.observation import describe_end, find_end, list_statuses
from fairlead.runner.engines.kubernetes.place import PODS
from fairlead.runner.engines.kubernetes.waiting import Waiter

MAX_LOG_BYTES = 2 * MAX_BYTES


async def fetch_source(waiter: Waiter, plan: Plan, image: str) -> str:
    """The devcontainer.json, or an empty text. A Pod that an earlier process of the runner created goes on."""
    place = waiter.place
    await place.cluster.create(place.collection(PODS), build_source_pod(plan, image))
    await waiter.wait_for_pod(place.source_pod_path, _has_begun)
    lines = LineLog(waiter.task, plan.spec.secrets.values())
    async for data in place.cluster.stream_log(place.source_pod_path, CLONE):
        lines.feed(data)
    lines.end()
    pod = await waiter.wait_for_pod(place.source_pod_path, lambda pod: False)
    end = find_end(pod, CLONE)
    if end is None or end.get("exitCode"):
        if end is not None and not lines.last_line:
            lines.feed(await place.cluster.read_log(place.source_pod_path, CLONE, MAX_LOG_BYTES))
            lines.end()
        message = lines.last_line or describe_end(pod)
        raise EngineError(Reason.CLONE_FAILED, f"the source could not be fetched: {message}")
    log = await place.cluster.read_log(place.source_pod_path, CONFIGURATION, MAX_LOG_BYTES)
    configuration = parse_output(log)
    await place.cluster.delete(place.source_pod_path)
    if plan.options.access_mode == "ReadWriteOncePod":
        await waiter.wait_until_gone(place.source_pod_path)
    return configuration


def parse_output(log: bytes) -> str:
    """The devcontainer.json from what the container printed."""
    first, *lines = log.decode("ascii", "replace").split("\n")
    try:
        if first not in (scripts.FOUND, scripts.MISSING):
            raise ValueError(first)
        content = b64decode("".join(lines[: lines.index(scripts.END)]))
    except ValueError:
        message = log.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineError(Reason.CONFIGURATION_INVALID, f"the devcontainer.json could not be read: {message}") from None
    if len(content) > MAX_BYTES:
        raise EngineError(Reason.CONFIGURATION_INVALID, "the devcontainer.json is larger than 1 MiB")
    return content.decode("utf-8", "replace")


def _has_begun(pod: Object) -> bool:
    """Whether the clone has a log."""
    return any(not (each.get("state") or {}).get("waiting") for each in list_statuses(pod, CLONE))
