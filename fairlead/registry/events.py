"""Records core Events about the server's own objects, which `kubectl describe` and `kubectl get events` show."""

import secrets
from typing import Final

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions

EVENT_SOURCE: Final = "fairlead"
CLUSTER_EVENT_NAMESPACE = "default"
"""The namespace of events about cluster-scoped objects."""


async def record_event(registry: Registry, obj: Object, reason: str, message: str, *, type: str = "Normal") -> None:
    """Creates an Event about an object."""
    meta = metadata(obj)
    namespace = meta.get("namespace") or CLUSTER_EVENT_NAMESPACE
    now = timestamp(registry.clock.now())
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:236].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": EVENT_SOURCE},
        "reportingComponent": EVENT_SOURCE,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    await registry.resource("", "events").create(event, namespace, WriteOptions(CONTROLLER_USER, EVENT_SOURCE))
