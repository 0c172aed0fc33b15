"""What a devcontainer.json and a template become in a cluster."""

import json
import subprocess
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, Limits, Reason
from fairlead.runner.engines.kubernetes.configuration import parse_configuration, quote_expression, read_dev_container
from fairlead.runner.engines.kubernetes.manifests import (
    Plan,
    build_network_policy,
    build_pod,
    build_secret,
    build_source_pod,
)
from fairlead.runner.engines.kubernetes.settings import Folders, Options, parse_options
from tests.runner.engines.kubernetes.conftest import UID, make_spec

FOLDER = "/workspaces/demo"
EVERYTHING = frozenset({"privileged", "capAdd", "securityOpt", "mounts", "runArgs"})


def read(configuration: dict[str, Any], *permissions: str, options: Options | None = None) -> Any:
    spec = make_spec("https://example.com/x.git", permissions=frozenset(permissions))
    content = json.dumps({"image": "tools:1", **configuration}).encode()
    return read_dev_container(content, spec, options or Options(), FOLDER)


def plan(configuration: dict[str, Any], *permissions: str, **options: str) -> tuple[Plan, Any]:
    parsed = parse_options(options)
    spec = make_spec(
        "https://example.com/x.git",
        permissions=frozenset(permissions),
        secrets={"TOKEN": "topsecret", "FAIRLEAD_GIT_TOKEN": "cloning"},
        environment={"FROM": "template $HOME"},
    )
    fetch = {"URL": "https://example.com/x.git", "TOKEN": "cloning", "ORIGIN": "https://example.com/x.git"}
    made = Plan(spec, parsed, Folders(), Limits(256 << 20, 0.5), "runner", "task", "demo", fetch)
    return made, read(configuration, *permissions, options=parsed)


LONG_VALUES: dict[str, dict[str, Any]] = {
    "variables without an end": {"remoteEnv": {"A": "${a:" * 240_000}},
    "variables of the container without an end": {"remoteEnv": {"A": "${containerEnv:a:" * 60_000}},
    "commands with variables without an end": {"onCreateCommand": "${containerEnv:a:" * 60_000},
    "a list of words without an end": {"onCreateCommand": ["${containerEnv:a:" * 60_000, "x"]},
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LONG_VALUES)
def test_a_long_value_is_read_in_time(name: str) -> None:
    assert len(json.dumps(LONG_VALUES[name])) < 1 << 20
    assert read({"image": "x", **LONG_VALUES[name]}).image == "x"


def test_values_of_variables_do_not_make_a_configuration_as_long_as_they_like() -> None:
    """A folder of half a megabyte, named ten thousand times, would need more memory than the machine has."""
    variable = "${containerWorkspaceFolder}"
    with pytest.raises(EngineError, match="larger than 1 MiB with the values of its variables"):
        read({"image": "x", "workspaceFolder": "/" + "f" * 400_000, "remoteEnv": {"A": variable * 10}})
    short = read({"image": "x", "workspaceFolder": "/f", "remoteEnv": {"A": variable * 10_000}})
    assert short.remote_environment["A"] == "/f" * 10_000


def test_comments_and_trailing_commas_are_read() -> None:
    text = b'\xef\xbb\xbf// a\n{ /* b */ "image": "x//y", "list": [1, 2, /* c */ ], "s": ",]",\n}'
    assert parse_configuration(text) == {"image": "x//y", "list": [1, 2], "s": ",]"}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a": "\\u0000"}', b"[" * 5000, b"\xff", b" " * (1 << 21)])
def test_other_files_are_refused(text: bytes) -> None:
    with pytest.raises(EngineError) as error:
        parse_configuration(text)
    assert error.value.reason == Reason.CONFIGURATION_INVALID


def test_variables_are_replaced() -> None:
    found = read(
        {
            "workspaceFolder": "/src/${localWorkspaceFolderBasename}",
            "containerEnv": {"A": "${containerWorkspaceFolder} ${localEnv:HOME} ${localEnv:X:none}"},
            "postCreateCommand": ["echo", "${containerEnv:HOME}/x", "a b"],
            "onCreateCommand": "echo ${containerEnv:HOME:y} ${devcontainerId}",
            "mounts": ["source=${devcontainerId}-cache,target=/cache,type=volume"],
        },
        "mounts",
    )
    assert found.folder == "/src/demo"
    assert found.environment == {"A": "/src/demo  none"}
    assert found.commands["postCreateCommand"] == {"": """echo "${HOME:-}"/x 'a b'"""}
    assert found.commands["onCreateCommand"] == {"": f"echo ${{HOME:-y}} {UID}"}
    assert found.mounts[0].source == f"{UID}-cache"


@pytest.mark.parametrize("text", ["", "a b", "${containerEnv:A}:/x", '${containerEnv:NONE:"`id`$(id)\\}x', "'"])
def test_expressions_are_quoted(text: str) -> None:
    script = f"A=value; printf '%s' {quote_expression(text)}"
    output = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout
    expected = text.replace("${containerEnv:A}", "value").replace('${containerEnv:NONE:"`id`$(id)\\}', '"`id`$(id)\\')
    assert output == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"initializeCommand": "touch /etc/x"},
        {"workspaceMount": "source=/,target=/workspace,type=bind"},
        {"appPort": [22]},
        {"dockerComposeFile": "compose.yml"},
        {"mounts": ["source=/,target=/host,type=bind"]},
        {"mounts": ["source=../x,target=/host,type=volume"]},
        {"mounts": ["source=a/../../x,target=/host,type=volume"]},
        {"mounts": ["source=x,target=/volume/work,type=volume"]},
        {"mounts": ["source=x,target=/run/../proc/x,type=volume"]},
        {"mounts": ["source=x,target=/x,type=volume,readonly=false"]},
        {"mounts": ["type=tmpfs,target=relative"]},
        {"runArgs": ["--privileged"]},
        {"runArgs": ["--network=host"]},
        {"securityOpt": ["apparmor=unconfined"]},
        {"capAdd": ["ALL; rm"]},
        {"capAdd": "SYS_ADMIN"},
        {"build": {"dockerfile": "Dockerfile"}},
        {"dockerFile": "Dockerfile"},
        {"features": {"x": {}}},
        {"image": "a b"},
        {"image": ["x"]},
        {"aPropertyOfTheFuture": True},
    ],
    ids=str,
)
def test_some_things_are_refused_whatever_the_template_allows(properties: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as error:
        read(properties, *EVERYTHING)
    assert error.value.reason == Reason.POLICY_VIOLATION


@pytest.mark.parametrize(
    "properties",
    [
        {"containerEnv": {"A=B": "x"}},
        {"containerEnv": ["A"]},
        {"remoteEnv": {"A;id": "x"}},
        {"remoteUser": "root; id"},
        {"remoteUser": "-x"},
        {"postCreateCommand": [["x"]]},
        {"workspaceFolder": "relative"},
    ],
    ids=str,
)
def test_some_things_make_no_sense(properties: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as error:
        read(properties)
    assert error.value.reason == Reason.CONFIGURATION_INVALID


@pytest.mark.parametrize(
    ("permission", "properties"),
    [
        ("privileged", {"privileged": True}),
        ("capAdd", {"capAdd": ["SYS_PTRACE"]}),
        ("securityOpt", {"securityOpt": ["seccomp=unconfined"]}),
        ("mounts", {"mounts": ["type=tmpfs,target=/cache"]}),
        ("runArgs", {"runArgs": ["--shm-size=1g"]}),
    ],
)
def test_some_things_need_a_permission(permission: str, properties: dict[str, Any]) -> None:
    read(properties, permission)
    with pytest.raises(EngineError, match=permission):
        read(properties, *(EVERYTHING - {permission}))


def test_a_pod_has_no_token_no_privileges_and_no_secret_values() -> None:
    made, container = plan({"remoteUser": "dev", "containerEnv": {"A": "$(B)"}})
    pod = build_pod(made, container)
    text = json.dumps([pod, build_source_pod(made, "git:1")])
    assert "topsecret" not in text and "cloning" not in text
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False and spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*spec["initContainers"], *spec["containers"]):
        context = each["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["capabilities"]["drop"] == ["ALL"]
        assert not {"NET_RAW", "MKNOD", "SYS_ADMIN", "SYS_PTRACE"} & set(context["capabilities"].get("add", ()))
        assert each["resources"]["limits"] == {"cpu": "500m", "memory": str(256 << 20), "ephemeral-storage": "10Gi"}
    main = spec["containers"][0]
    assert {"name": "A", "value": "$$(B)"} in main["env"] and {"name": "FROM", "value": "template $$HOME"} in main[
        "env"
    ]
    mounts = {each["mountPath"]: each.get("subPath") for each in main["volumeMounts"]}
    assert mounts == {FOLDER: "work/demo", "/run/fairlead": None, "/run/fairlead/secrets": None}
    secrets = next(each for each in spec["volumes"] if each["name"] == "secrets")
    assert [each["key"] for each in secrets["secret"]["items"]] == ["TOKEN"]
    assert sorted(build_secret(made)["data"]) == ["TOKEN", "clone.TOKEN"]


@pytest.mark.parametrize("options", [{}, {"user": "1000"}], ids=str)
@pytest.mark.parametrize("user", ["", "dev", "1000"])
def test_the_image_of_a_repository_never_gets_the_root_of_the_claim(user: str, options: dict[str, str]) -> None:
    """There, it could place links for the next clone, which has the credentials of the project."""
    wanted = {"mounts": ["source=cache,target=/cache"], **({"remoteUser": user} if user else {})}
    spec = build_pod(*plan(wanted, "mounts", **options))["spec"]
    assert {each["image"] for each in (*spec["initContainers"], *spec["containers"])} == {"tools:1"}
    for each in (*spec["initContainers"], *spec["containers"]):
        mounts = [mount for mount in each["volumeMounts"] if mount["name"] == "claim"]
        assert {mount.get("subPath") for mount in mounts} <= {"work/demo", "volumes/cache"}, each["name"]


def test_the_clone_has_a_read_only_root_and_nothing_that_it_does_not_need() -> None:
    made, _ = plan({})
    spec = build_source_pod(made, "git:1")["spec"]
    (clone,), (show,) = spec["initContainers"], spec["containers"]
    for each in (clone, show):
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]}
    assert {"name": "claim", "mountPath": FOLDER, "subPath": "work/demo", "readOnly": True} in show["volumeMounts"]
    assert not any("valueFrom" in each for each in show["env"])


def test_a_number_as_user_fits_the_restricted_pod_security_level() -> None:
    made, container = plan({}, user="1000", userNamespace="true", runtimeClass="gvisor", nodeSelector="a=b")
    for pod in (build_pod(made, container), build_source_pod(made, "git:1")):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True and context["fsGroup"] == 1000
        assert pod["spec"]["hostUsers"] is False and pod["spec"]["runtimeClassName"] == "gvisor"
        for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert each["securityContext"]["runAsUser"] == 1000


def test_permissions_change_the_pod() -> None:
    wanted = {
        "capAdd": ["SYS_PTRACE"],
        "securityOpt": ["seccomp=unconfined"],
        "mounts": ["source=cache,target=/cache", "type=tmpfs,target=/scratch"],
        "runArgs": ["--shm-size=64m"],
        "overrideCommand": False,
    }
    spec = build_pod(*plan(wanted, *EVERYTHING))["spec"]
    main = spec["containers"][0]
    assert "SYS_PTRACE" in main["securityContext"]["capabilities"]["add"]
    assert "SYS_PTRACE" not in spec["initContainers"][0]["securityContext"]["capabilities"]["add"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert "command" not in main
    mounts = {each["mountPath"]: each for each in main["volumeMounts"]}
    assert mounts["/cache"]["subPath"] == "volumes/cache" and mounts["/scratch"]["name"] == "m1"
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": str(64 << 20)}} in spec["volumes"]
    assert build_pod(*plan({"privileged": True}, "privileged"))["spec"]["containers"][0]["securityContext"] == {
        "privileged": True
    }


def test_nothing_connects_to_a_workspace_and_it_reaches_no_metadata_service() -> None:
    spec = build_network_policy(plan({})[0])["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in spec
    assert "169.254.169.254/32" in spec["egress"][0]["to"][0]["ipBlock"]["except"]
