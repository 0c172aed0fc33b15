"""Responses of a fake server to requests about the tasks of a workspace."""

import json
from base64 import b64encode
from typing import Any

from tests.harness.fake_server import M, build_object

WORKSPACES = f"{M}/namespaces/service-p-demo/devpodworkspaceinstances"
DEV = f"{WORKSPACES}/dev"
TASK = "task-1"
FLAGS = ("dev", "--project", "demo")


def build_workspace(runner: str = "local", **status: Any) -> dict[str, Any]:
    spec = {"runnerRef": {"runner": runner} if runner else {}, "templateRef": {"name": "default"}}
    workspace = build_object("dev", kind="DevPodWorkspaceInstance", spec=spec, status=status)
    workspace["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    return workspace


def build_condition(type: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}


def build_task(status: str = "Succeeded", type: str = "up", **result: str) -> dict[str, Any]:
    encoded = b64encode(json.dumps(result).encode()).decode()
    return {"id": TASK, "type": type, "status": status, "createdAt": "2026-01-01T00:00:00Z", "result": encoded}


def build_log(*messages: str, code: int | None = 0, offset: int = 0) -> tuple[int, bytes]:
    """The log from an offset on. Without a code, the connection is lost before the end of the task."""
    lines = []
    for message in messages:
        content = json.dumps({"message": message}).encode() + b"\n"
        offset += len(content)
        lines.append({"type": 0, "bytes": b64encode(content).decode(), "offset": offset})
    if code is not None:
        lines.append({"type": 6, "exitCode": code})
    return 200, b"".join(json.dumps(each).encode() + b"\n" for each in lines)
