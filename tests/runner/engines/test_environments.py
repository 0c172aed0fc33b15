"""Environments: a devcontainer.json in the place of that of the repository, with real dev containers at the end."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from fairlead.runner.engines.contract import (
    EngineError,
    GitSource,
    ImageSource,
    Reason,
    Source,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.configuration import describe_override
from fairlead.runner.engines.devcontainer.preparation import decode_spec, encode_spec
from fairlead.runner.engines.specification import read_environment
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "e7717077-0000-4000-8000-000000000001"
REPOSITORY = GitSource("https://example.com/x.git")


def make_spec(text: str, source: Source = REPOSITORY, **changes: object) -> WorkspaceSpec:
    return WorkspaceSpec(UID, "project", "demo", "ada", source, dev_container=text, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "image", "expected"),
    [
        ('{"image": "a"} // comment', "default", {"image": "a"}),
        ('{"build": {"dockerfile": "D"},}', "default", {"build": {"dockerfile": "D"}}),
        ('{"remoteUser": "dev"}', "default", {"remoteUser": "dev", "image": "default"}),
        ('{"image": ""}', "default", {"image": "default"}),
    ],
)
def test_an_environment_without_an_image_gets_that_of_the_template(text: str, image: str, expected: object) -> None:
    assert json.loads(read_environment(make_spec(text), image)) == expected


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (make_spec("{"), "the environment is no devcontainer.json: "),
        (make_spec("{}"), "neither an image nor a build"),
        (make_spec('{"image": "a"}', dev_container_path="x.json"), "takes the place of 'x.json'"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(spec: WorkspaceSpec, problem: str) -> None:
    with pytest.raises(EngineError) as error:
        read_environment(spec, "")
    assert error.value.reason == Reason.CONFIGURATION_INVALID
    assert problem in error.value.message


def test_the_image_of_the_source_is_for_an_environment_without_one() -> None:
    assert json.loads(describe_override(make_spec('{"remoteUser": "dev"}', ImageSource("debian:12")))) == {
        "image": "debian:12",
        "remoteUser": "dev",
    }
    assert json.loads(describe_override(make_spec("", ImageSource("debian:12")))) == {"image": "debian:12"}


def test_the_next_runner_knows_the_environment() -> None:
    spec = make_spec('{"image": "a"}')
    assert decode_spec(json.loads(json.dumps(encode_spec(spec)))) == spec


# --- with real containers ---------------------------------------------------------------------------------------------


@pytest.fixture
def repository(containers: Containers) -> Iterator[str]:
    refused = {"image": "localhost/of-the-repository", "initializeCommand": "touch /tmp/x"}
    yield containers.commit(
        "app",
        {
            ".devcontainer/devcontainer.json": json.dumps(refused),
            ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nRUN echo built >/built\nUSER dev\n",
            "service/README": "of the service\n",
        },
    )


async def test_an_environment_takes_the_place_of_what_the_repository_has(
    containers: Containers, repository: str
) -> None:
    engine, task = containers.engine(), RecordedTask()
    environment = {"image": IMAGE, "remoteUser": "dev", "containerEnv": {"FROM": "environment"}}
    await engine.up(make_spec(json.dumps(environment), GitSource(repository), template_hash="1"), task)
    try:
        outcome = await run_inside(engine, UID, "echo $FROM; id -un; pwd; cat service/README")
        assert outcome.output.split() == ["environment", "dev", "/workspaces/demo", "of", "the", "service"]
        # Another environment needs another container: paths in it are relative to .devcontainer of the repository.
        built = '{"build": {"dockerfile": "Dockerfile"}, /* of the repository */ "containerEnv": {"FROM": "build"}}'
        await engine.up(make_spec(built, GitSource(repository), template_hash="2"), RecordedTask())
        outcome = await run_inside(engine, UID, "echo $FROM; cat /built")
        assert outcome.output.split() == ["build", "built"]
    finally:
        await engine.delete(UID, RecordedTask())


async def test_an_environment_without_a_file_in_the_repository_works_in_a_subfolder(containers: Containers) -> None:
    url = containers.commit("plain", {"service/README": "of the service\n"})
    engine = containers.engine()
    spec = make_spec('{"remoteUser": "dev"}', GitSource(url, subfolder="service"), options={"image": IMAGE})
    await engine.up(spec, RecordedTask())
    try:
        assert (await run_inside(engine, UID, "pwd; cat README")).output.splitlines() == [
            "/workspaces/demo/service",
            "of the service",
        ]
    finally:
        await engine.delete(UID, RecordedTask())


@pytest.mark.parametrize(
    "property",
    [
        {"privileged": True},
        {"capAdd": ["SYS_ADMIN"]},
        {"mounts": ["type=bind,source=/,target=/host"]},
        {"runArgs": ["--network=host"]},
        {"initializeCommand": "touch /tmp/x"},
    ],
    ids=lambda value: next(iter(value)),
)
async def test_an_environment_gives_no_permissions(containers: Containers, property: dict[str, object]) -> None:
    engine = containers.engine()
    spec = make_spec(json.dumps({"image": IMAGE, **property}), ImageSource(IMAGE))
    try:
        task = RecordedTask()
        await engine.up(spec, task)
        warnings = [line for line in task.text.splitlines() if line.startswith("warning: ")]
        assert len(warnings) == 1 and next(iter(property)).removesuffix("s") in warnings[0]
        found = await run_inside(engine, UID, "grep CapEff /proc/self/status; ls -d /host; true")
        assert not int(found.output.split()[1], 16) >> 21 & 1 and "/host" not in found.output.split()
    finally:
        await asyncio.shield(engine.delete(UID, RecordedTask()))
