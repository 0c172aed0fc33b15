"""Tests of `fairlead.controllers.workspaces.runner_deployments`: runners are applied, updated and repaired."""

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from fairlead.controllers.workspaces.runner_deployments import (
    RESYNC_SECONDS,
)
from fairlead.controllers.workspaces.runner_manifests import ROLE_RULES
from fairlead.core.objects import Object, get_path
from fairlead.registry.codec import decode
from tests.controllers.workspaces.runner_deployment_fixture import (
    KEY,
    NAME,
    NAMESPACE_PATH,
    PATHS,
    Keys,
    config,
    deploy,
    deployed,
    get_container,
    keys,
    make_available,
    message,
    server,
)
from tests.fake_cluster.kube import FakeKube
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

__all__ = ["config", "keys", "server"]

ROLE_EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/runner-role.yaml"


async def test_a_runner_is_deployed(server: RegistryFixture, kube: FakeKube) -> None:
    created = await deploy(server, kube)
    assert kube.objects.keys() == {NAMESPACE_PATH, *PATHS.values()}
    for path in (NAMESPACE_PATH, *PATHS.values()):
        labels = kube.objects[path]["metadata"]["labels"]
        assert labels["service.sh/managed"] == "fairlead", path
        assert labels["service.sh/uid"] == created["metadata"]["uid"], path
    assert kube.objects[NAMESPACE_PATH]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert message(server) == f'Deployment "{NAME}" runs in namespace "{NAME}" of cluster "c"'
    assert get_path(server.get("Runner", "r"), "status.message").endswith(message(server))


async def test_its_permissions_are_those_of_the_documented_role(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    documented = yaml.safe_load(ROLE_EXAMPLE.read_text())["rules"]
    assert kube.objects[PATHS["Role"]]["rules"] == documented == list(ROLE_RULES)
    binding = kube.objects[PATHS["RoleBinding"]]
    assert binding["roleRef"]["name"] == NAME
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}]


async def test_its_credentials_are_in_a_secret_only(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    files = {name: b64decode(text).decode() for name, text in kube.objects[PATHS["Secret"]]["data"].items()}
    assert (files["key"], files["ca.crt"]) == (KEY, "PEM of the server")
    kubeconfig = yaml.safe_load(files["kubeconfig"])
    assert kubeconfig["contexts"][0]["context"]["namespace"] == NAME
    assert kubeconfig["users"][0]["user"] == {"tokenFile": "/run/fairlead-runner/token/token"}
    rest = [obj for path, obj in kube.objects.items() if path != PATHS["Secret"]]
    events = [decode(entry) for entry in server.registry.view.entries("", "events")]
    assert KEY not in str((rest, events, server.get("Runner", "r")))


async def test_its_pod_has_no_privileges(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    spec = kube.objects[PATHS["Deployment"]]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert kube.objects[PATHS["ServiceAccount"]]["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert get_container(kube)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    claim = kube.objects[PATHS["PersistentVolumeClaim"]]["spec"]
    assert claim == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def test_the_templates_are_merged(server: RegistryFixture, kube: FakeKube) -> None:
    pod = {
        "image": "registry.example.com/mine:2",
        "resource": {"limits": {"memory": "1Gi"}},
        "env": [{"name": "A", "value": "1"}],
        "envFrom": [{"configMapRef": {"name": "more"}}],
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "extra", "emptyDir": {}}],
        "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
        "initContainers": [{"name": "first", "image": "busybox"}],
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["fairlead.example.com"]}],
    }
    labels = {"team": "a", "service.sh/runner": "other"}
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "fast", "storageSize": "5Gi"}
    created = await deploy(
        server,
        kube,
        podTemplate={"metadata": {"labels": labels, "annotations": {"note": "x"}}, "spec": pod},
        persistentVolumeClaimTemplate={"metadata": {"labels": {"tier": "gold"}}, "spec": claim},
    )
    template = kube.objects[PATHS["Deployment"]]["spec"]["template"]
    uid = created["metadata"]["uid"]
    assert template["metadata"]["labels"] == {"team": "a", "service.sh/runner": "r", "service.sh/uid": uid}
    assert template["metadata"]["annotations"]["note"] == "x"
    for part in ("nodeSelector", "affinity", "tolerations", "initContainers", "hostAliases"):
        assert template["spec"][part] == pod[part]
    container = get_container(kube)
    assert (container["image"], container["resources"]) == (pod["image"], pod["resource"])
    assert container["env"][-1] == {"name": "A", "value": "1"}
    assert container["envFrom"] == pod["envFrom"]
    assert container["volumeMounts"][-1] == {"name": "extra", "mountPath": "/extra"}
    assert template["spec"]["volumes"][-1] == {"name": "extra", "emptyDir": {}}
    stored = kube.objects[PATHS["PersistentVolumeClaim"]]
    assert stored["metadata"]["labels"]["tier"] == "gold"
    assert stored["spec"]["storageClassName"] == "fast"
    assert stored["spec"]["resources"] == {"requests": {"storage": "5Gi"}}


async def test_a_changed_template_is_applied(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    changed = {"spec": {"image": "registry.example.com/fairlead:2"}}
    await server.patch("Runner", "r", lambda each: each["spec"]["clusterRef"].update(podTemplate=changed))
    await eventually(lambda: get_container(kube)["image"].endswith(":2"))
    await eventually(lambda: deployed(server) == ("False", "Progressing"))
    make_available(kube)
    await eventually(lambda: deployed(server) == ("True", "Available"))


async def test_a_rotated_key_is_written_to_the_cluster(server: RegistryFixture, kube: FakeKube, keys: Keys) -> None:
    await deploy(server, kube)
    pod = get_path(kube.objects[PATHS["Deployment"]], "spec.template")
    await asyncio.sleep(1)
    keys.value = "rotated"
    await server.create("Namespace", "service-system")
    body = server.build_object("Secret", "runner-r-key", "service-system")
    await server.submit("Secret", body)  # the controller looks at its name only
    await asyncio.sleep(1)
    assert b64decode(kube.objects[PATHS["Secret"]]["data"]["key"]) == b"rotated"
    assert get_path(kube.objects[PATHS["Deployment"]], "spec.template") == pod, "the Pod must not restart"


@pytest.mark.parametrize("kind", ["Deployment", "Role", "Secret"])
async def test_what_others_change_is_reverted(server: RegistryFixture, kube: FakeKube, kind: str) -> None:
    await deploy(server, kube)
    await asyncio.sleep(5)
    wanted = {part: kube.objects[PATHS[kind]].get(part) for part in ("spec", "rules", "data")}

    def damage(obj: Object) -> None:
        part = next(part for part in wanted if part in obj)
        obj[part] = [] if part == "rules" else {}
        if "generation" in obj["metadata"]:
            obj["metadata"]["generation"] += 1

    kube.edit_object(PATHS[kind], damage)
    await asyncio.sleep(RESYNC_SECONDS / 2)
    assert {part: kube.objects[PATHS[kind]].get(part) for part in wanted} == wanted
    reasons = [decode(entry)["reason"] for entry in server.registry.view.entries("", "events")]
    assert "DriftRepaired" in reasons


async def test_what_others_delete_is_created_again(server: RegistryFixture, kube: FakeKube) -> None:
    await deploy(server, kube)
    await asyncio.sleep(5)
    kube.handle_request("DELETE", PATHS["ServiceAccount"])
    await asyncio.sleep(RESYNC_SECONDS / 2)
    assert PATHS["ServiceAccount"] in kube.objects
