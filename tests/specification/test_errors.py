"""Errors that depend on chance with a real server, and are therefore tested without one."""

import pytest

from fairlead.core.errors import ApiError
from fairlead.registry import object_metadata
from tests.harness.registry import open_registry


async def test_a_generated_name_that_exists_gets_409(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_metadata, "generate_name", lambda prefix: f"{prefix}always")
    async with open_registry() as api:
        await api.create("Gadget", metadata={"generateName": "job-"})
        with pytest.raises(ApiError) as response:
            await api.create("Gadget", metadata={"generateName": "job-"})
    assert (response.value.code, response.value.reason) == (409, "AlreadyExists")
