"""Large parameters of instances are parsed in a thread, and once, so that a write does not hold up the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.admission.apps import check_app_instances
from fairlead.admission.parameters import parse_large_parameters
from fairlead.core import yaml
from fairlead.core.call import Decision
from fairlead.core.errors import Invalid
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain import parameters
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADMIN = User("root", ("system:masters",))
NAMESPACE = f"{NAMESPACE_PREFIX}web"
NAMES = [f"parameter-{number}" for number in range(1_900)]


class Parses:
    """The threads in which parameters were parsed."""

    def __init__(self, patches: pytest.MonkeyPatch) -> None:
        self.threads: list[bool] = []
        decode = yaml.decode

        def count(data: bytes, **options: Any) -> Any:
            if len(data) > parameters.MAX_SMALL_LENGTH:
                self.threads.append(threading.current_thread() is threading.main_thread())
            return decode(data, **options)

        patches.setattr(yaml, "decode", count)


async def create(api: RegistryFixture, text: str) -> None:
    spec = {"appRef": {"name": "app"}, "target": {"spaceInstance": {"name": "dev"}}, "parameters": text}
    await api.submit("AppInstance", api.build_object("AppInstance", "one", NAMESPACE, spec=spec), WriteOptions(ADMIN))


@asynccontextmanager
async def serve(*variables: str) -> AsyncIterator[RegistryFixture]:
    """An API with an App that has these parameters."""
    rules = (parse_large_parameters(GROUP), check_app_instances(lambda user, target: Decision(True), GROUP))
    async with open_registry(rules=rules) as api:
        await api.submit("Project", api.build_object("Project", "web", spec={}), WriteOptions(CONTROLLER_USER))
        app = {"config": {"manifests": "a: b\n"}, "parameters": [{"variable": each} for each in variables]}
        await api.submit("App", api.build_object("App", "app", spec=app), WriteOptions(CONTROLLER_USER))
        yield api


def test_a_write_parses_large_parameters_once_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write() -> list[bool]:
        async with serve(*NAMES) as api:
            parses = Parses(monkeypatch)
            await create(api, "".join(f"{name}: value\n" for name in NAMES))
            return parses.threads

    assert asyncio.run(write()) == [False]  # not on virtual time, which has no threads


def test_problems_of_large_parameters_are_found_as_before() -> None:
    async def write(text: str) -> None:
        async with serve(NAMES[0]) as api:
            await create(api, text)

    with pytest.raises(Invalid, match="is not a parameter of the app"):
        asyncio.run(write("".join(f"{name}: value\n" for name in NAMES)))
    with pytest.raises(Invalid, match="it is set twice"):
        asyncio.run(write(f"{NAMES[0]}: value\n" * 1_000))
