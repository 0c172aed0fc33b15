"""Records core Events about the server's own objects, which `kubectl describe` and `kubectl get events` show."""

import secrets
from typing import Final

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Writing

SOURCE: Final = "fairlead"
CLUSTER_EVENTS = "default"
"""The namespace of events about cluster-scoped objects."""


async def record(registry: Registry, about: Object, reason: str, message: str, *, type: str = "Normal") -> None:
    """Creates an Event about an object."""
    meta = metadata(about)
    namespace = meta.get("namespace") or CLUSTER_EVENTS
    now = timestamp(registry.clock.now())
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:236].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": SOURCE},
        "reportingComponent": SOURCE,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    await registry.resource("", "events").create(event, namespace, Writing(CONTROLLER, SOURCE))
