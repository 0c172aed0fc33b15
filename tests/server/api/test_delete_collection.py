"""server.api.verbs: deleting a large collection does not block the event loop."""

from fairlead.server.api.verbs import DELETES_PER_YIELD
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
