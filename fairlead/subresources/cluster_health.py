"""The subresource `health` of a cluster: its recent probes, from the compact history in its status.

The controller that probes runs in one process only. The history is stored with the status, so every process has it.
"""

from datetime import UTC, datetime

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.domain.probe_history import ProbeSample, decode_samples
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

_COPIED_FIELDS = ("online", "version", "latencyMilliseconds", "lastProbeTime")


def health_handlers(api_group: str, registry: Registry) -> dict[ActionPath, ActionHandler]:
    clusters = registry.resource(api_group, CLUSTER.plural)

    async def health(request: ActionRequest) -> Object:
        status = decode(await clusters.get("", request.name)).get("status") or {}  # raises NotFound
        return {
            "apiVersion": request.kind.api_version,
            "kind": request.kind.name,
            "metadata": {"name": request.name},
            **{field: status[field] for field in _COPIED_FIELDS if field in status},
            "samples": [_build_sample(each) for each in decode_samples(status.get("probeHistory"))],
        }

    return {(api_group, CLUSTER.plural, "health"): health}


def _build_sample(sample: ProbeSample) -> Object:
    latency = {} if sample.latency is None else {"latencyMilliseconds": sample.latency}
    reason = {"reason": sample.reason} if sample.reason else {}
    time = timestamp(datetime.fromtimestamp(sample.time, UTC))
    return {"time": time, **latency, "ok": not sample.reason, **reason}
