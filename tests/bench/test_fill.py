"""A store that was filled behind the server's back holds what the server would have stored."""

from pathlib import Path

import orjson
import pytest

from bench.fill import DATABASE, fill
from bench.objects import GROUP, app, name_of, team_of
from fairlead.storage.contract import Write
from fairlead.storage.sqlite import SqliteStore

UID = "6f0c9a52-0d4e-4c1b-9d50-0123456789ab"


async def stored(data: Path, write: bool) -> list[dict[str, dict[str, object]]]:
    store = await SqliteStore.open(str(data / DATABASE))
    try:
        if write:
            first = orjson.loads(app(name_of(0), {"team": team_of(0)}))
            first["metadata"]["uid"] = UID
            await store.commit([Write((GROUP, "apps", "", name_of(0)), orjson.dumps(first), 0)])
        return [orjson.loads(record.value) for record in (await store.scan((GROUP, "apps"))).records]
    finally:
        await store.close()


async def test_every_copy_has_a_name_a_label_and_an_identity_of_its_own(tmp_path: Path) -> None:
    await stored(tmp_path, write=True)
    await fill(tmp_path, 120)
    found = await stored(tmp_path, write=False)
    assert [each["metadata"]["name"] for each in found] == [name_of(number) for number in range(120)]
    assert [each["metadata"]["labels"] for each in found] == [{"team": team_of(number)} for number in range(120)]
    assert len({each["metadata"]["uid"] for each in found}) == 120
    assert all(each["spec"] == found[0]["spec"] for each in found)


async def test_without_a_first_object_there_is_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no first object"):
        await fill(tmp_path, 2)
