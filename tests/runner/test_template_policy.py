"""What a runner honours of a template: by the trust that the server reports, and by what its operator allows."""

import asyncio
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.workspaces import PLACEMENT_OPTIONS, SIZE_OPTIONS
from fairlead.runner.engines.devcontainer.settings import DEFAULT_LIMITS as DEVCONTAINER_LIMITS
from fairlead.runner.engines.kubernetes.settings import DEFAULT_LIMITS as KUBERNETES_LIMITS
from fairlead.runner.template_policy import UNTRUSTED_LIMITS
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.fake_engine import FakeEngine

REPOSITORY = {"service.sh/workspace-source": "git:https://example.com/a.git"}
REFERENCE = {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}}


def set_template(runner: RunnerFixture, trust: str, provider: str = "fake", **options: Any) -> None:
    values = {name: value if isinstance(value, dict) else {"value": value} for name, value in options.items()}
    template: Object = {"provider": {"name": provider, "options": values}}
    runner.api.change("u", status={"instance": template, "templateTrust": trust})


async def try_up(runner: RunnerFixture, trust: str, provider: str = "fake", **options: Any) -> str:
    """Why the `up` of a new workspace fails; empty if it does not."""
    runner.api.create("u", **REPOSITORY)
    set_template(runner, trust, provider, **options)
    return await bring_up_again(runner)


async def bring_up_again(runner: RunnerFixture) -> str:
    await eventually(lambda: runner.workspaces.find("u") is not None)
    task_id = runner.get().request_up({})

    def has_ended() -> bool:
        task = runner.record().find_task(task_id)
        return task is not None and task.status != "Running"

    await eventually(has_ended)
    task = runner.record().find_task(task_id)
    assert task is not None
    assert task.reason == ("PolicyViolation" if task.message else "")
    return task.message


@pytest.mark.parametrize("trust", ["Confined", "Unmarked", ""])
@pytest.mark.parametrize("option", [*sorted(PLACEMENT_OPTIONS), "other"])
async def test_a_template_without_trust_has_no_permissions_and_chooses_no_place(
    runner: RunnerFixture, option: str, trust: str
) -> None:
    message = await try_up(runner, trust, **{option: "x"})
    assert f"the template is not trusted, so it cannot set {option}; use a template that administrators" in message
    assert runner.engine.specs == [] and runner.api.credential_requests == []


async def test_a_template_without_trust_has_no_options_from_secrets(runner: RunnerFixture) -> None:
    assert "it cannot set image" in await try_up(runner, "Confined", image=REFERENCE)
    assert runner.api.credential_requests == []


@pytest.mark.parametrize("value", [REFERENCE, {"value": "a<hidden>"}], ids=["secret", "password parameter"])
@pytest.mark.parametrize("option", sorted(PLACEMENT_OPTIONS | SIZE_OPTIONS))
async def test_permissions_placement_and_limits_never_come_from_secrets(
    runner: RunnerFixture, option: str, value: Object
) -> None:
    options: dict[str, Any] = {option: value}
    message = await try_up(runner, "Trusted", **options)
    assert f"the option {option} of the template's provider must not be secret" in message
    assert runner.api.credential_requests == []


async def test_a_trusted_template_gets_what_the_operator_allows_and_nothing_else(runner: RunnerFixture) -> None:
    message = await try_up(runner, "Trusted", allow="mounts, privileged")
    assert "the template allows mounts, privileged, which this runner does not honour" in message
    assert "have the runner started with --allow mounts --allow privileged" in message
    await runner.kill()
    runner.allowed_permissions = frozenset({"mounts"})
    runner.start()
    assert "the template allows privileged," in await bring_up_again(runner)
    assert runner.engine.specs == []
    set_template(runner, "Trusted", allow="mounts")
    await asyncio.sleep(1)
    assert await bring_up_again(runner) == ""
    assert [(each.permissions, each.is_trusted) for each in runner.engine.specs] == [(frozenset({"mounts"}), True)]


async def test_what_the_operator_allows_is_not_for_templates_without_trust(runner: RunnerFixture) -> None:
    await runner.kill()
    runner.allowed_permissions = frozenset({"mounts"})
    runner.start()
    assert "it cannot set allow" in await try_up(runner, "Confined", allow="mounts")


@pytest.mark.parametrize(("option", "value"), [("memory", "5Gi"), ("cpus", "2500m"), ("processes", "4097")])
async def test_a_template_without_trust_gets_at_most_the_defaults(
    runner: RunnerFixture, option: str, value: str
) -> None:
    message = await try_up(runner, "Confined", **{option: value})
    assert f"its option {option} can be at most" in message
    set_template(runner, "Trusted", **{option: value})
    await asyncio.sleep(1)
    assert await bring_up_again(runner) == ""


async def test_a_template_without_trust_may_choose_less_than_the_defaults(runner: RunnerFixture) -> None:
    assert await try_up(runner, "Confined", memory="4Gi", cpus="2", processes="4096", image="debian", allow="") == ""
    assert [each.is_trusted for each in runner.engine.specs] == [False]


def test_the_bounds_are_the_defaults_of_the_engines() -> None:
    assert UNTRUSTED_LIMITS == DEVCONTAINER_LIMITS
    assert (KUBERNETES_LIMITS.memory_bytes, KUBERNETES_LIMITS.cpus) == (
        UNTRUSTED_LIMITS.memory_bytes,
        UNTRUSTED_LIMITS.cpus,
    )


async def start_with_two_engines(runner: RunnerFixture) -> FakeEngine:
    await runner.kill()
    other = FakeEngine(runner.folder / "other")
    runner.start(fake=runner.engine, process=other)
    return other


async def test_a_template_without_trust_does_not_choose_the_engine(runner: RunnerFixture) -> None:
    other = await start_with_two_engines(runner)
    message = await try_up(runner, "Confined", "process")
    assert "it cannot choose the engine process; leave out its provider, name fake, or use a template" in message
    assert other.specs == [] and runner.record().engine == ""
    set_template(runner, "Trusted", "process")
    await asyncio.sleep(1)
    assert await bring_up_again(runner) == ""
    assert len(other.specs) == 1
    set_template(runner, "Confined")  # the workspace stays in its engine, so it has to be trusted to be there
    await asyncio.sleep(1)
    assert "it cannot choose the engine process" in await bring_up_again(runner)


async def test_an_up_that_an_earlier_process_began_does_not_go_on_without_the_permission(
    runner: RunnerFixture,
) -> None:
    await runner.kill()
    runner.allowed_permissions = frozenset({"mounts"})
    runner.start()
    runner.engine.hanging, runner.engine.is_adopting = "Build", True
    runner.api.create("u", **REPOSITORY)
    set_template(runner, "Trusted", allow="mounts")
    await eventually(lambda: runner.workspaces.find("u") is not None)
    task_id = runner.get().request_up({})
    await eventually(lambda: runner.engine.active == 1)
    await runner.kill()
    runner.allowed_permissions = frozenset()
    runner.start()

    def has_failed() -> bool:
        task = runner.record().find_task(task_id)
        return task is not None and task.reason == "PolicyViolation"

    await eventually(has_failed)
    assert runner.containers() == [] and len(runner.engine.specs) == 1
