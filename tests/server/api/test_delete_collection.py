"""server.api.verbs: deleting a collection."""

from fairlead.server.api.verbs import DELETES_PER_YIELD
from fairlead.server.auth.aggregated_authorization import HideAll
from tests.harness.event_loop_turns import TurnCounter
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.api_fixture import GADGETS, build_gadget, load_body, open_api


@on_virtual_time
async def test_other_tasks_run_while_a_collection_is_deleted() -> None:
    """A dry run writes nothing, so it never waits for the store."""
    async with open_api() as api:
        for number in range(3 * DELETES_PER_YIELD):
            await api("POST", GADGETS, build_gadget(f"g{number:03}"))
        async with TurnCounter() as turns:
            deleted = load_body(await api("DELETE", GADGETS, query="dryRun=All"))
        assert len(deleted["items"]) == 3 * DELETES_PER_YIELD
        assert turns.count >= 3


async def test_what_a_filter_hides_is_not_deleted() -> None:
    async with open_api() as api:
        for name in ("one", "two"):
            await api("POST", GADGETS, build_gadget(name))
        api.object_filter = HideAll()
        assert load_body(await api("DELETE", GADGETS))["items"] == []
        assert load_body(await api("GET", GADGETS))["items"] == []
        api.object_filter = None
        assert len(load_body(await api("GET", GADGETS))["items"]) == 2
