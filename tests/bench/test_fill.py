"""Tests of `bench/fill.py`: the store has the same objects as if the server had created them."""

from pathlib import Path

import orjson
import pytest

from bench.fill import DATABASE, fill
from bench.objects import GROUP, build_app, name_object, name_team
from fairlead.storage.contract import Write
from fairlead.storage.sqlite import SqliteStore

UID = "6f0c9a52-0d4e-4c1b-9d50-0123456789ab"


async def read_store(data: Path, write: bool) -> list[dict[str, dict[str, object]]]:
    store = await SqliteStore.open(str(data / DATABASE))
    try:
        if write:
            first = orjson.loads(build_app(name_object(0), {"team": name_team(0)}))
            first["metadata"]["uid"] = UID
            await store.commit([Write((GROUP, "apps", "", name_object(0)), orjson.dumps(first), 0)])
        return [orjson.loads(record.value) for record in (await store.scan((GROUP, "apps"))).records]
    finally:
        await store.close()


async def test_every_copy_has_its_own_name_label_and_uid(tmp_path: Path) -> None:
    await read_store(tmp_path, write=True)
    await fill(tmp_path, 120)
    objects = await read_store(tmp_path, write=False)
    assert [each["metadata"]["name"] for each in objects] == [name_object(number) for number in range(120)]
    assert [each["metadata"]["labels"] for each in objects] == [{"team": name_team(number)} for number in range(120)]
    assert len({each["metadata"]["uid"] for each in objects}) == 120
    assert all(each["spec"] == objects[0]["spec"] for each in objects)


async def test_filling_without_a_first_object_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no first object"):
        await fill(tmp_path, 2)
