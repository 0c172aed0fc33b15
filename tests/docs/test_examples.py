"""Every kind that can be created has an example. tests/cli/test_first_hour.py applies the folder with those of stored
kinds; those in examples/requests are sent here."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.kinds import KINDS
from fairlead.registry.kind import Kind
from tests.harness.server_process import MANAGEMENT, Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REQUESTS = [
    (path.name, each)
    for path in sorted((EXAMPLES / "requests").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
]


def api_version(kind: Kind) -> str:
    return f"{kind.group}/{kind.version}" if kind.group else kind.version


BY_TYPE = {(api_version(kind), kind.name): kind for kind in KINDS}


@pytest.mark.parametrize("persisted", [True, False], ids=["stored", "requests"])
def test_every_kind_that_can_be_created_has_an_example(persisted: bool) -> None:
    folder = EXAMPLES if persisted else EXAMPLES / "requests"
    objects = [each for path in folder.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    shown = {(each["apiVersion"], each["kind"]) for each in objects}
    wanted = {key for key, kind in BY_TYPE.items() if kind.persisted == persisted and "create" in kind.verbs}
    assert wanted - shown == set()
    assert shown <= BY_TYPE.keys()


@pytest.mark.parametrize(("name", "body"), REQUESTS, ids=[f"{name}-{body['kind']}" for name, body in REQUESTS])
def test_an_example_of_a_request_is_answered(server: Server, name: str, body: dict[str, Any]) -> None:
    kind = BY_TYPE[body["apiVersion"], body["kind"]]
    prefix = f"apis/{kind.group}" if kind.group else "api"
    namespace = f"/namespaces/{body['metadata']['namespace']}" if kind.namespaced else ""
    with server.client() as client:
        url = f"{MANAGEMENT}/{prefix}/{kind.version}{namespace}/{kind.plural}?fieldValidation=Strict"
        reply = client.post(url, json=body)
    assert reply.status_code in (200, 201), reply.text
    assert reply.json()["status"], f"{name}: the response has no result"
