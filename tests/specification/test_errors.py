"""Errors that a real server only gives by bad luck, so they are provoked without one."""

import pytest

from fairlead.core.errors import ApiError
from fairlead.registry import object_metadata
from tests.harness.registry import open_registry


async def test_a_generated_name_that_exists_is_409(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_metadata, "generate_name", lambda prefix: f"{prefix}always")
    async with open_registry() as api:
        await api.create("Gadget", metadata={"generateName": "job-"})
        with pytest.raises(ApiError) as refused:
            await api.create("Gadget", metadata={"generateName": "job-"})
    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")
