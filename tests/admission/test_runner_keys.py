"""The Secret beside a runner's key: with keys that the server makes for runners, and with no others."""

from fairlead.admission.runner_keys import runner_keys
from fairlead.core.user import CONTROLLER, User
from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from tests.admission.world import World

RULE = runner_keys(MANAGEMENT_GROUP, "demo")
FOR_A_RUNNER = {"service.sh/runner": "r"}


def making(user: User = CONTROLLER, labels: dict[str, str] | None = None, *, dry_run: bool = False) -> Change:
    key = {"metadata": {"name": "k", "labels": FOR_A_RUNNER if labels is None else labels}, "spec": {}}
    return Change("create", OWNED_ACCESS_KEY, user, None, key, dry_run=dry_run, once={"spec.key": "the-value"})


async def test_a_runners_key_brings_its_secret_along(world: World) -> None:
    change = making()
    await RULE(change, world.registry)
    (write,) = change.also
    assert (write.key, write.expected) == (("", "secrets", "demo", "runner-r-key"), 0)


async def test_other_keys_bring_nothing_along(world: World) -> None:
    for change in (making(User("ada")), making(labels={}), making(dry_run=True)):
        await RULE(change, world.registry)
        assert change.also == []


async def test_what_is_no_new_key_brings_nothing_along(world: World) -> None:
    update = making()
    update.verb = "update"
    other = making()
    other.kind = world.of("Gadget").kind
    for change in (update, other):
        await RULE(change, world.registry)
        assert change.also == []
