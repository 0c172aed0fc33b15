"""The Secret with a component's key: only the keys that the server creates for runners and agents get one."""

from fairlead.admission.access_keys import store_component_key
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from tests.harness.registry import RegistryFixture

RULE = store_component_key(MANAGEMENT_GROUP, "demo", (RUNNER_COMPONENT, AGENT))
RUNNER_LABELS = {"service.sh/runner": "r"}


def create_change(
    user: User = CONTROLLER_USER,
    labels: dict[str, str] | None = None,
    subject: str = "service:runner:r",
    *,
    dry_run: bool = False,
) -> Change:
    meta = {"name": "k", "labels": RUNNER_LABELS if labels is None else labels}
    key = {"metadata": meta, "spec": {"subject": subject}}
    return Change(
        "create", OWNED_ACCESS_KEY, user, None, key, dry_run=dry_run, one_time_fields={"spec.key": "the-value"}
    )


async def test_the_key_of_an_agent_is_stored_in_a_secret(api: RegistryFixture) -> None:
    change = create_change(labels={"service.sh/agent": "c"}, subject="service:agent:c")
    await RULE(change, api.registry)
    (write,) = change.extra_writes
    assert (write.key, write.expected_revision) == (("", "secrets", "demo", "agent-c-key"), 0)


async def test_the_key_of_a_runner_is_stored_in_a_secret(api: RegistryFixture) -> None:
    change = create_change()
    await RULE(change, api.registry)
    (write,) = change.extra_writes
    assert (write.key, write.expected_revision) == (("", "secrets", "demo", "runner-r-key"), 0)


async def test_other_keys_get_no_secret(api: RegistryFixture) -> None:
    changes = (
        create_change(User("ada")),
        create_change(labels={}),
        create_change(subject="ada"),
        create_change(dry_run=True),
    )
    for change in changes:
        await RULE(change, api.registry)
        assert change.extra_writes == []


async def test_updates_and_other_kinds_get_no_secret(api: RegistryFixture) -> None:
    update = create_change()
    update.verb = "update"
    other = create_change()
    other.kind = api.resource("Gadget").kind
    for change in (update, other):
        await RULE(change, api.registry)
        assert change.extra_writes == []
