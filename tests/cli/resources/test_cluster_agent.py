"""fairlead cluster add --agent: the manifest of an agent that dials out."""

import base64
import re
import subprocess
from dataclasses import replace
from typing import Any

import yaml

from fairlead.cli.resources.cluster_agent import (
    IDENTITY_SECRET,
    JOIN_SECRET,
    NAMESPACE,
    AgentManifest,
    build_manifest,
    removal_commands,
)
from fairlead.cli.resources.cluster_role import AGENT_PARTS, RolePart
from tests.cli.conftest import ROOT
from tests.cli.resources.cluster_responses import CLUSTERS, build_cluster
from tests.harness.cli import CliFixture
from tests.harness.fake_server import failure_status
from tests.harness.watch_responses import END, build_watch_response

CREATED = {"status": {"token": "fljoin_x", "serviceHost": "https://fairlead.example.com", "caCert": "the CA"}}
MANIFEST = AgentManifest(
    server="https://fairlead.example.com",
    token="fljoin_x",
    authority="the CA",
    image="fairlead:1",
    parts=(RolePart.SPACES,),
    cluster_roles=("view",),
)


def find(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def test_the_manifest_has_the_token_the_ca_and_two_agents_that_share_a_key() -> None:
    objects = build_manifest(MANIFEST)
    join = find(objects, "Secret", JOIN_SECRET)["data"]
    assert {key: base64.b64decode(value) for key, value in join.items()} == {"token": b"fljoin_x", "ca.crt": b"the CA"}
    deployment = find(objects, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    (container,) = deployment["template"]["spec"]["containers"]
    assert "fljoin_x" not in str(container)
    rules = find(objects, "Role", "fairlead-agent:identity")["rules"]
    assert rules == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [IDENTITY_SECRET], "verbs": ["get", "patch"]}
    ]


def test_a_second_manifest_keeps_the_key_of_the_agents() -> None:
    assert "data" not in find(build_manifest(MANIFEST), "Secret", IDENTITY_SECRET)


def test_no_token_of_a_service_account_is_stored() -> None:
    assert "kubernetes.io/service-account-token" not in str(build_manifest(MANIFEST))
    assert find(build_manifest(MANIFEST), "Namespace")["metadata"]["name"] == NAMESPACE


def test_without_an_image_add_says_that_it_must_be_built_and_pushed(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure_status(404, "NotFound", "not found")))
    ops.fake.on("POST", f"{CLUSTERS}/berlin/agenttoken", (201, CREATED))
    result = ops.run("cluster", "add", "berlin", "--agent")
    (container,) = find(list(yaml.safe_load_all(result.out)), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert f"its image {container['image']} is in no public registry" in result.err


def test_add_creates_the_cluster_and_prints_its_manifest(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure_status(404, "NotFound", "not found")))
    ops.fake.on("POST", f"{CLUSTERS}/berlin/agenttoken", (201, CREATED))
    result = ops.run("cluster", "add", "berlin", "--agent", "--image", "fairlead:1")
    assert result.code == 0, result.err
    assert find(list(yaml.safe_load_all(result.out)), "Deployment")
    assert "works once" in result.err
    assert "is in no public registry" not in result.err
    assert ops.fake.requests_to("POST", CLUSTERS)[0].body["spec"] == {"networkPeer": True}


def test_a_cluster_with_an_agent_joins_again_and_a_dialled_one_does_not(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, {**build_cluster(), "spec": {"networkPeer": True}}))
    ops.fake.on("POST", f"{CLUSTERS}/berlin/agenttoken", (201, CREATED))
    assert ops.run("cluster", "add", "berlin", "--agent").code == 0
    assert ops.fake.requests_to("POST", CLUSTERS) == []
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_cluster()))
    refused = ops.run("cluster", "add", "berlin", "--agent")
    assert refused.code == 1
    assert "set spec.networkPeer to true first" in refused.err


def test_the_hint_for_an_agent_beside_the_cluster_is_complete(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure_status(404, "NotFound", "not found")))
    ops.fake.on("POST", f"{CLUSTERS}/berlin/agenttoken", (201, CREATED))
    err = ops.run("cluster", "add", "berlin", "--agent").err
    command = "fairlead agent --server https://fairlead.example.com --token-file token --kubeconfig FILE"
    assert f"{command} --state fairlead-agent-berlin\n" in err
    assert JOIN_SECRET in err


def test_the_documented_command_writes_the_token_file(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure_status(404, "NotFound", "not found")))
    ops.fake.on("POST", f"{CLUSTERS}/berlin/agenttoken", (201, CREATED))
    page = (ROOT / "docs" / "connect.md").read_text()
    (pipeline,) = re.findall(r"fairlead cluster add berlin --agent \| (sed .*) > token\)", page)
    manifest = ops.run("cluster", "add", "berlin", "--agent").out
    done = subprocess.run(["sh", "-c", pipeline], input=manifest, capture_output=True, text=True, check=True)
    assert done.stdout == "fljoin_x"


def test_the_commands_that_delete_an_agent_cover_each_object_of_every_manifest() -> None:
    commands = list(removal_commands())
    (namespace,) = [each for each in commands if f" delete namespace {NAMESPACE} " in each]
    for each in build_manifest(replace(MANIFEST, parts=AGENT_PARTS)):
        kind, name = each["kind"].lower(), each["metadata"]["name"]
        place = each["metadata"].get("namespace", "")
        if NAMESPACE in (place, name) and (place or kind == "namespace"):
            continue  # with the namespace
        option = f" -n {place} delete " if place else "CONTEXT delete "
        assert [line for line in commands if option in line and kind in line and f" {name} " in line], (kind, name)
    assert commands[-1] == namespace


def test_removing_a_cluster_with_an_agent_says_what_stays_and_what_deletes_it(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, {**build_cluster(), "spec": {"networkPeer": True}}))
    ops.fake.on("GET", CLUSTERS, build_watch_response(END))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 0, result.err
    removed, stays, *rest = result.err.splitlines()
    assert removed == "the cluster berlin is removed"
    assert "the agent of berlin, its key and its permissions stay in the cluster" in stays
    commands = [line.strip() for line in rest[:-1]]
    assert commands == list(removal_commands())
    page = (ROOT / "docs" / "connect.md").read_text()
    assert [each for each in commands if each.replace("CONTEXT", "berlin-admin") not in page] == []


def test_removing_a_dialled_cluster_does_not_speak_of_agents(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_cluster()))
    ops.fake.on("GET", CLUSTERS, build_watch_response(END))
    assert "agent" not in ops.run("cluster", "remove", "berlin", "--yes").err
