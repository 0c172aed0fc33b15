"""Apps with a script, with a fake helm that runs hooks, and a fake cluster that runs Jobs."""

import asyncio
from base64 import b64decode
from typing import Any

import pytest

from fairlead.controllers.apps.script_jobs import MAX_SHOWN_CHARACTERS
from fairlead.controllers.helm.deploy import FAILED_RETRY_SECONDS
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object, get_path
from fairlead.domain.app_scripts import MAX_SCRIPT_BYTES, build_variables, find_script_problems, variable_name
from tests.controllers.apps.app_fixture import (
    APP,
    ReleaseHelm,
    access,
    create_virtual_cluster,
    helm,
    install_app,
    server,
    wait_for_reason,
)
from tests.fake_cluster.script_hooks import ScriptEnd
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import TRUSTED, FakeAccess

__all__ = ["access", "helm", "server"]
NAMESPACE = "demo-dev"
DEPLOYER = f"service:deployer:{NAMESPACE}:apps"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/one-script"
PARAMETERS = [{"variable": "size", "defaultValue": "1"}, {"variable": "api.token", "type": "password"}]
UNTRUSTED = {"annotations": {"service.sh/trusted": "false"}}


async def create_script(api: RegistryFixture, metadata: Object | None = None, **bash: Any) -> None:
    content = {"script": "echo $PARAMETER_SIZE {{ .Name }}", "image": "tools:1", **bash}
    spec = {"config": {"bash": content}, "parameters": PARAMETERS, "timeout": "90s"}
    await api.create("App", "job", metadata=metadata or {}, spec=spec)


async def install_script(api: RegistryFixture, **spec: Any) -> None:
    await install_app(api, appRef={"name": "job"}, **spec)


def hooks_of(helm: ReleaseHelm, number: int = -1) -> dict[tuple[str, str], Object]:
    found = parse_objects(helm.installed[number].chart.manifests, 10)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


async def test_a_script_runs_in_a_confined_job(server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm) -> None:
    await create_script(server)
    await install_script(server, parameters="size: 3\napi:\n  token: hush-hush\n")
    instance = await wait_for_reason(server, "Deployed")
    hooks = hooks_of(helm)
    job = hooks["Job", "one-script"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"], job["ttlSecondsAfterFinished"]) == (0, 90, 3600)
    assert helm.installed[0].timeout > 90
    assert (pod["automountServiceAccountToken"], "serviceAccountName" in pod) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["command"] == ["bash", "/fairlead/script"]
    assert container["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}
    script = b64decode(hooks["Secret", "one-script"]["data"]["script"]).decode()
    values = {key: b64decode(value).decode() for key, value in hooks["Secret", "one-values"]["data"].items()}
    assert script == "echo $PARAMETER_SIZE {{ .Name }}"
    assert values == {"PARAMETER_SIZE": "3", "PARAMETER_API_TOKEN": "hush-hush"}
    assert helm.installed[0].impersonate_user == DEPLOYER
    assert "hush-hush" not in str(instance["status"]["conditions"])


async def test_what_a_script_needs_is_deleted_after_it_has_run(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    await create_script(server, clusterRole="view")
    await install_script(server)
    await wait_for_reason(server, "Deployed")
    assert ("RoleBinding", "one-script") in hooks_of(helm) and JOB in access.kube.objects
    left = [path for path in access.kube.objects if path.endswith(("/one-script", "/one-values")) and path != JOB]
    assert left == []


async def test_what_helm_leaves_after_a_failure_is_deleted_but_the_job(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    helm.script_end = ScriptEnd(exit_code=3, keeps_hooks=True)
    await create_script(server, clusterRole="view")
    await install_script(server)
    await wait_for_reason(server, "ScriptFailed")
    left = [path for path in access.kube.objects if path.endswith(("/one-script", "/one-values"))]
    assert left == [JOB]


async def test_an_interpreter_in_the_first_line_is_used(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await create_script(server, script="#!/usr/bin/env python3\nprint(1)\n")
    await install_script(server)
    await wait_for_reason(server, "Deployed")
    (container,) = hooks_of(helm)["Job", "one-script"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/fairlead/script"]


async def test_a_script_that_fails_is_reported_with_its_output_and_not_run_again(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    helm.script_end = ScriptEnd(exit_code=3, output="begin\n\nno such \x1b[1mtable\nhush-hush\n")
    await create_script(server)
    await install_script(server, parameters="api:\n  token: hush-hush\n")
    instance = await wait_for_reason(server, "ScriptFailed")
    message = instance["status"]["message"]
    assert "the script has failed: exit code 3; the end of its output: begin | no such [1mtable | " in message
    assert "hush-hush" not in str(api_view(server))
    assert (instance["status"]["phase"], instance["status"].get("deployHash", "")) == ("Failed", "")
    await asyncio.sleep(3 * FAILED_RETRY_SECONDS)
    assert len(helm.installed) == 1
    helm.script_end = ScriptEnd()
    await server.patch(APP, "one", lambda each: each["spec"].update(description="once more"))
    instance = await wait_for_reason(server, "Deployed")
    assert (len(helm.installed), instance["status"]["release"]["revision"]) == (2, 2)


def api_view(api: RegistryFixture) -> Object:
    """What clients see."""
    return get_path(api.get(APP, "one"), "status.conditions") or {}


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (ScriptEnd(exit_code=137, container_reason="OOMKilled"), "out of memory (512Mi)"),
        (ScriptEnd(reason="DeadlineExceeded"), "has not ended within 90 s, the timeout of the app"),
    ],
)
async def test_other_ends_have_their_reasons(
    server: RegistryFixture, helm: ReleaseHelm, end: ScriptEnd, said: str
) -> None:
    helm.script_end = end
    await create_script(server)
    await install_script(server)
    assert said in (await wait_for_reason(server, "ScriptFailed"))["status"]["message"]


async def test_the_output_in_a_condition_is_limited_to_its_end(server: RegistryFixture, helm: ReleaseHelm) -> None:
    helm.script_end = ScriptEnd(exit_code=1, output="".join(f"{number:06} {'x' * 90}\n" for number in range(1000)))
    await create_script(server)
    await install_script(server)
    message = (await wait_for_reason(server, "ScriptFailed"))["status"]["message"]
    assert "000999" in message and "000900" not in message
    assert len(message) < MAX_SHOWN_CHARACTERS + 400


async def test_helm_alone_is_no_proof_of_success(server: RegistryFixture, helm: ReleaseHelm) -> None:
    helm.script_end = ScriptEnd(is_forgotten=True)
    await create_script(server)
    await install_script(server)
    instance = await wait_for_reason(server, "ScriptUnconfirmed")
    assert instance["status"]["phase"] != "Ready"


async def test_the_job_of_a_former_run_says_nothing_about_this_one(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    helm.script_end = ScriptEnd(exit_code=3)
    await create_script(server)
    await install_script(server)
    await wait_for_reason(server, "ScriptFailed")
    helm.failures.add("one")
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await wait_for_reason(server, "HelmFailed")


async def test_a_script_runs_again_when_a_parameter_changes_and_only_then(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await create_script(server)
    await install_script(server)
    await wait_for_reason(server, "Deployed")
    await server.patch(APP, "one", lambda each: each["spec"].update(description="the same"))
    await eventually(lambda: get_path(server.get(APP, "one"), "status.observedGeneration") == 2)
    assert len(helm.installed) == 1
    await server.patch(APP, "one", lambda each: each["spec"].update(parameters="size: 2\n"))
    await eventually(lambda: len(helm.installed) == 2)
    await wait_for_reason(server, "Deployed")


@pytest.mark.parametrize(
    "bash", [{"clusterRole": "view"}, {"securityContext": {"privileged": True}}, {"podSecurityContext": {"fsGroup": 0}}]
)
async def test_only_trusted_apps_have_roles_and_security_contexts(
    server: RegistryFixture, helm: ReleaseHelm, bash: Object
) -> None:
    await create_script(server, UNTRUSTED, **bash)
    await install_script(server)
    await wait_for_reason(server, "ScriptNotAllowed")
    assert helm.installed == []


async def test_an_untrusted_script_without_them_runs(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await create_script(server, UNTRUSTED)
    await install_script(server)
    await wait_for_reason(server, "Deployed")


async def test_a_role_that_the_deployer_does_not_have_is_refused_by_the_cluster(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await create_script(server, clusterRole="cluster-admin")
    await install_script(server)
    instance = await wait_for_reason(server, "PermissionsMissing")
    assert instance["status"]["phase"] == "Failed"
    assert 'may not grant its script the ClusterRole "cluster-admin"' in instance["status"]["message"]


async def test_the_security_contexts_of_a_trusted_app_are_over_the_default_ones(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    contexts: Any = {"podSecurityContext": {"runAsUser": 7}, "securityContext": {"readOnlyRootFilesystem": False}}
    await create_script(server, **contexts)
    await install_script(server)
    await wait_for_reason(server, "Deployed")
    pod = hooks_of(helm)["Job", "one-script"]["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (7, True)
    security = pod["containers"][0]["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (False, False)


async def test_in_a_virtual_cluster_the_role_is_bound_everywhere_and_uninstalling_removes_the_rest(
    server: RegistryFixture, access: FakeAccess, helm: ReleaseHelm
) -> None:
    access.virtual_down = None
    await create_virtual_cluster(server)
    await create_script(server, clusterRole="cluster-admin")
    await install_script(server, target={"virtualClusterInstance": {"name": "v", "namespace": "inner"}})
    await wait_for_reason(server, "Deployed")
    uid = (server.get(APP, "one") or {})["metadata"]["uid"]
    binding = hooks_of(helm)["ClusterRoleBinding", f"service.sh:script:{uid}"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "one-script", "namespace": "inner"}]
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/service.sh:script:{uid}"
    # As after a run that was interrupted; and one of another owner.
    access.virtual.add_object(path, metadata={"labels": {"service.sh/uid": uid}})
    foreign = "/api/v1/namespaces/inner/secrets/one-values"
    access.virtual.add_object(foreign)
    await server.delete(APP, "one")
    await eventually(lambda: server.get(APP, "one") is None)
    jobs = "/apis/batch/v1/namespaces/inner/jobs/one-script"
    assert (path in access.virtual.objects, jobs in access.virtual.objects) == (False, False)
    assert foreign in access.virtual.objects


@pytest.mark.parametrize(
    ("bash", "field", "said"),
    [
        ({"script": "true"}, "image", "must be set to an image with bash"),
        ({"script": "true", "image": "a b"}, "image", "must be the name of an image"),
        ({"script": "true", "image": "{{ parameters.x }}"}, "image", "without placeholders"),
        ({"script": "rm {{ parameters.a.b }}", "image": "x"}, "script", 'use "$PARAMETER_A_B" for a.b'),
        ({"script": "a\0b", "image": "x"}, "script", "without NUL"),
        ({"script": "x" * (MAX_SCRIPT_BYTES + 1), "image": "x"}, "script", "may not be more than"),
        ({"script": "true", "image": "x", "clusterRole": "a/b"}, "clusterRole", "the name of a ClusterRole"),
    ],
)
async def test_a_script_that_cannot_run_is_rejected(api: RegistryFixture, bash: Object, field: str, said: str) -> None:
    with pytest.raises(Invalid, match=f"spec.config.bash.{field}") as caught:
        await api.create("App", "bad", spec={"config": {"bash": bash}})
    assert said in str(caught.value)
    assert [name for name, _ in find_script_problems(bash)] == [field]


def test_parameters_are_environment_variables() -> None:
    assert (variable_name("size"), variable_name("image.tag-name")) == ("PARAMETER_SIZE", "PARAMETER_IMAGE_TAG_NAME")
    assert build_variables({"a.b": "1", "a-b": "2"})[1].startswith("two of its parameters have")
    assert "NUL" in build_variables({"a": "x\0"})[1]
    assert "in all" in build_variables({f"p{number}": "x" * 90_000 for number in range(4)})[1]


async def test_a_script_in_a_template_is_refused_with_the_reason(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await create_script(server)
    template = {"template": {"apps": [{"name": "job"}]}}
    await server.create("SpaceTemplate", "scripted", metadata=TRUSTED, spec=template)
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "templateRef": {"name": "scripted"}}
    await server.create("SpaceInstance", "two", spec=spec)
    await eventually(lambda: "which templates do not do" in str(get_path(server.get("SpaceInstance", "two"), "status")))
