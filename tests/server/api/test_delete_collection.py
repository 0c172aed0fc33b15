"""Deleting a collection holds up nobody, however many objects it has."""

from fairlead.server.api.verbs import DELETES_PER_YIELD
from tests.harness.event_loop_turns import Turns
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.test_verbs import GADGETS, gadget, loaded, new_api


@on_virtual_time
async def test_others_get_their_turns_while_a_collection_is_deleted() -> None:
    """A dry run writes nothing, so it waits for nothing."""
    async with new_api() as api:
        for number in range(3 * DELETES_PER_YIELD):
            await api("POST", GADGETS, gadget(f"g{number:03}"))
        async with Turns() as turns:
            taken = loaded(await api("DELETE", GADGETS, query="dryRun=All"))
        assert len(taken["items"]) == 3 * DELETES_PER_YIELD
        assert turns.count >= 3
