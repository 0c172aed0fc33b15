"""storage/memory.py: compaction frees memory."""

from fairlead.storage.contract import Write
from fairlead.storage.memory import MemoryStore


async def test_compaction_keeps_one_version_of_a_live_key_and_none_of_a_deleted_one() -> None:
    store = MemoryStore()
    live = deleted = 0
    for _ in range(100):
        live = deleted = await store.commit([Write(("living",), b"x", live), Write(("deleted",), b"x", deleted)])
    newest = await store.commit([Write(("deleted",), None, deleted)])
    await store.compact(newest)
    assert [len(versions) for versions in store._versions.values()] == [1]
    assert (len(store._keys), len(store._log)) == (1, 0)
