"""Responses of a fake server to watch requests."""

import json
from typing import Any

from fairlead.client import watch
from tests.harness.fake_server import build_object

END = {
    "type": "BOOKMARK",
    "object": {"metadata": {"resourceVersion": "7", "annotations": {watch.INITIAL_EVENTS_END: "true"}}},
}


def build_watch_response(*events: Any) -> tuple[int, bytes]:
    return 200, b"".join(json.dumps(each).encode() + b"\n" for each in events)


def build_watch_event(type: str, name: str, version: str) -> dict[str, Any]:
    obj = build_object(name)
    obj["metadata"]["resourceVersion"] = version
    return {"type": type, "object": obj}
