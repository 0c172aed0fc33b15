"""The Secret beside a component's key: with keys that the server makes for runners and agents, and with no others."""

from fairlead.admission.access_keys import store_component_key
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from tests.harness.registry import RegistryFixture

RULE = store_component_key(MANAGEMENT_GROUP, "demo", (RUNNER_COMPONENT, AGENT))
FOR_A_RUNNER = {"service.sh/runner": "r"}


def making(
    user: User = CONTROLLER_USER,
    labels: dict[str, str] | None = None,
    subject: str = "service:runner:r",
    *,
    dry_run: bool = False,
) -> Change:
    meta = {"name": "k", "labels": FOR_A_RUNNER if labels is None else labels}
    key = {"metadata": meta, "spec": {"subject": subject}}
    return Change(
        "create", OWNED_ACCESS_KEY, user, None, key, dry_run=dry_run, one_time_fields={"spec.key": "the-value"}
    )


async def test_an_agents_key_brings_its_secret_along(api: RegistryFixture) -> None:
    change = making(labels={"service.sh/agent": "c"}, subject="service:agent:c")
    await RULE(change, api.registry)
    (write,) = change.extra_writes
    assert (write.key, write.expected_revision) == (("", "secrets", "demo", "agent-c-key"), 0)


async def test_a_runners_key_brings_its_secret_along(api: RegistryFixture) -> None:
    change = making()
    await RULE(change, api.registry)
    (write,) = change.extra_writes
    assert (write.key, write.expected_revision) == (("", "secrets", "demo", "runner-r-key"), 0)


async def test_other_keys_bring_nothing_along(api: RegistryFixture) -> None:
    others = (making(User("ada")), making(labels={}), making(subject="ada"), making(dry_run=True))
    for change in others:
        await RULE(change, api.registry)
        assert change.extra_writes == []


async def test_what_is_no_new_key_brings_nothing_along(api: RegistryFixture) -> None:
    update = making()
    update.verb = "update"
    other = making()
    other.kind = api.of("Gadget").kind
    for change in (update, other):
        await RULE(change, api.registry)
        assert change.extra_writes == []
