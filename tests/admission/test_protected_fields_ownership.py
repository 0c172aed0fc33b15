"""Marks that say whose something is stay as they are for everybody but administrators (T-11)."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.protected_fields import OWNERSHIP_KEYS, SERVER_ONLY_KEYS, protect_ownership_labels
from fairlead.core.errors import Forbidden
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture

ADMIN = User("root", ("service:admins",))
SCOPED = User("root", ("service:admins",), scope=Scope(projects=("*",)))


@pytest.fixture
def ruled(api: RegistryFixture) -> RegistryFixture:
    chain = AdmissionChain((protect_ownership_labels("service-p-"),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    return RegistryFixture(api.store, api.view, registry, api.clock)


def setting(part: str, **values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda obj: obj["metadata"].update({part: values})


@pytest.mark.parametrize(("part", "key"), sorted({*OWNERSHIP_KEYS, *SERVER_ONLY_KEYS}))
async def test_t11_a_mark_that_was_set_is_not_changed_and_not_removed(
    ruled: RegistryFixture, part: str, key: str
) -> None:
    body = ruled.body("Gadget", "a", metadata={part: {key: "mine", "other": "x"}})
    await ruled.submit("Gadget", body, WriteOptions(ADMIN))
    for patch in (setting(part, **{key: "yours"}), setting(part), setting(part, other="x")):
        for user in (ADA, SCOPED):
            with pytest.raises(Forbidden, match="only administrators may change it"):
                await ruled.patch("Gadget", "a", patch, WriteOptions(user))
    await ruled.patch("Gadget", "a", setting(part, **{key: "mine", "other": "y"}), WriteOptions(ADA))
    await ruled.patch("Gadget", "a", setting(part, **{key: "yours"}), WriteOptions(ADMIN))


async def test_t11_a_mark_may_be_set_where_there_is_none(ruled: RegistryFixture) -> None:
    await ruled.create("Gadget", "a")
    await ruled.patch("Gadget", "a", setting("labels", **{OWNERSHIP_KEYS[0][1]: "mine"}), WriteOptions(ADA))


async def test_t11_the_namespace_of_a_project_is_not_relabelled(ruled: RegistryFixture) -> None:
    await ruled.submit("Namespace", ruled.body("Namespace", "service-p-x"), WriteOptions(CONTROLLER_USER))
    await ruled.create("Namespace", "free")
    for part in ("labels", "annotations"):
        with pytest.raises(Forbidden):
            await ruled.patch("Namespace", "service-p-x", setting(part, a="b"), WriteOptions(ADA))
        await ruled.patch("Namespace", "service-p-x", setting(part, a="b"), WriteOptions(ADMIN))
        await ruled.patch("Namespace", "free", setting(part, a="b"), WriteOptions(ADA))


@pytest.mark.parametrize("labels", ["x", 5, [1]])
async def test_what_is_no_map_is_refused_for_that(ruled: RegistryFixture, labels: Any) -> None:
    await ruled.create("Gadget", "a", metadata={"labels": {"b": "c"}})
    with pytest.raises(Exception) as caught:
        await ruled.patch("Gadget", "a", lambda obj: obj["metadata"].update(labels=labels), WriteOptions(ADA))
    assert not isinstance(caught.value, AttributeError | TypeError)


@pytest.mark.parametrize(("part", "key"), SERVER_ONLY_KEYS)
@pytest.mark.parametrize("user", [ADA, SCOPED])
async def test_t11_a_mark_of_the_server_is_dropped_on_every_way(
    ruled: RegistryFixture, part: str, key: str, user: User
) -> None:
    writing = WriteOptions(user)
    body = ruled.body("Gadget", "a", metadata={part: {key: "mine", "other": "x"}})
    assert (await ruled.submit("Gadget", body, writing))["metadata"][part] == {"other": "x"}
    assert writing.warnings == [f"metadata.{part}[{key}] is set by the server only; it was dropped"]
    after = await ruled.patch("Gadget", "a", setting(part, **{key: "mine", "other": "y"}), WriteOptions(user))
    assert after["metadata"][part] == {"other": "y"}
    after = await ruled.patch("Gadget", "a", setting(part, **{key: "mine"}), WriteOptions(user))
    assert part not in after["metadata"]
    await ruled.patch("Gadget", "a", setting(part, **{key: "mine"}), WriteOptions(ADMIN))
    after = await ruled.patch("Gadget", "a", setting(part, **{key: "mine", "other": "z"}), WriteOptions(user))
    assert after["metadata"][part] == {key: "mine", "other": "z"}


async def test_t11_a_namespace_says_by_itself_of_no_project_that_it_is_its(ruled: RegistryFixture) -> None:
    body = ruled.body("Namespace", "free", metadata={"labels": {"service.sh/project": "theirs"}})
    made = await ruled.submit("Namespace", body, WriteOptions(ADA))
    assert "service.sh/project" not in made["metadata"]["labels"]
