"""The numbers of workspaces, from which ids and networks follow: two runners on a machine never have one in common."""

import asyncio
import shutil
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.isolation import ranges
from fairlead.runner.engines.devcontainer.isolation.network import network_name
from fairlead.runner.engines.devcontainer.isolation.ranges import check_range, claim_existing, claim_number
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, open_folder, write_json
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.settings import Settings


@pytest.fixture(autouse=True)
def no_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the network namespaces of the machine."""
    monkeypatch.setattr(ranges, "NAMESPACES", tmp_path / "netns")
    return tmp_path / "netns"


def make_settings(tmp_path: Path, state: str = "a", **changes: object) -> Settings:
    folder, shared = tmp_path / state, tmp_path / "ranges"
    return Settings(state_folder=folder, runner=state, ranges_folder=shared, **changes)  # type: ignore[arg-type]


def claim(settings: Settings, uid: str) -> int:
    return claim_number(settings, open_folder(settings.state_folder, uid))


def write_number(settings: Settings, uid: str, number: int) -> None:
    """As version 0.2 did, without a claim."""
    folder = open_folder(settings.state_folder, uid)
    folder.root.mkdir(parents=True)
    write_json(folder.identity, {"number": number})


def test_a_workspace_keeps_the_lowest_number_that_was_free(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    assert [claim(settings, name) for name in "abca"] == [0, 1, 2, 0]
    open_folder(settings.state_folder, "b").identity.unlink()
    assert claim(settings, "d") == 1
    assert claim(settings, "b") == 3


async def test_workspaces_that_start_at_the_same_time_have_different_numbers(tmp_path: Path) -> None:
    both = [make_settings(tmp_path, state) for state in "ab"]
    claims = (asyncio.to_thread(claim, settings, f"w{index}") for index in range(10) for settings in both)
    assert sorted(await asyncio.gather(*claims)) == list(range(20))


def test_workspaces_of_two_runners_with_default_settings_have_no_number_in_common(tmp_path: Path) -> None:
    first, second = (make_settings(tmp_path, state) for state in "ab")
    assert [claim(first, "x"), claim(second, "x"), claim(second, "y"), claim(first, "y")] == [0, 1, 2, 3]
    assert [claim(first, "x"), claim(second, "x")] == [0, 1]


def test_a_number_is_taken_until_its_network_is_gone(tmp_path: Path, no_networks: Path) -> None:
    first, second = (make_settings(tmp_path, state) for state in "ab")
    network = no_networks / network_name(first.state_folder, first.first_uid)
    assert claim(first, "x") == 0
    network.mkdir(parents=True)
    shutil.rmtree(first.state_folder)
    assert claim(second, "x") == 1
    network.rmdir()
    assert claim(second, "y") == 0


def test_numbers_that_an_earlier_version_gave_are_noted_when_the_runner_starts(tmp_path: Path) -> None:
    first, second = (make_settings(tmp_path, state) for state in "ab")
    write_number(first, "x", 0)
    write_number(first, "y", 1)
    claim_existing(first)
    assert claim(second, "x") == 2
    assert claim(first, "y") == 1


def test_two_workspaces_with_one_number_from_an_earlier_version_do_not_both_start(tmp_path: Path) -> None:
    first, second = (make_settings(tmp_path, state) for state in "ab")
    for settings in (first, second):
        write_number(settings, "x", 0)
        claim_existing(settings)
    assert claim(first, "x") == 0
    with pytest.raises(
        EngineError, match=r"of another runner on this machine, in .*/a/workspaces/x, because version 0.2"
    ):
        claim(second, "x")
    assert claim(second, "y") == 1
    assert claim(first, "x") == 0
    shutil.rmtree(open_folder(first.state_folder, "x").root)
    assert claim(second, "x") == 0


@pytest.mark.parametrize(
    ("first_uid", "network_pool"),
    [
        (1_000_000_000, "10.99.0.0/16"),
        (1_000_065_536, "10.99.0.0/16"),
        (1_268_435_455, "10.99.0.0/16"),
        (1_500_000_000, "10.213.128.0/20"),
        (1_500_000_000, "10.0.0.0/8"),
        (999_999_999, "10.99.0.0/28"),
    ],
)
def test_ranges_that_overlap_are_refused_with_what_to_do(tmp_path: Path, first_uid: int, network_pool: str) -> None:
    claim_existing(make_settings(tmp_path, "a"))
    second = make_settings(tmp_path, "b", first_uid=first_uid, network_pool=network_pool)
    for act in (check_range, claim_existing, lambda settings: claim(settings, "x")):
        with pytest.raises(
            EngineError, match=r"overlap with .* another runner .*/a: .*first_uid and network_pool"
        ) as raised:
            act(second)
        assert raised.value.reason == Reason.ENGINE_UNAVAILABLE
    assert not open_folder(second.state_folder, "x").root.exists()


def test_ranges_beside_each_other_are_no_overlap_and_one_of_a_removed_runner_is_none(tmp_path: Path) -> None:
    first = make_settings(tmp_path, "a")
    claim_existing(first)
    second = make_settings(tmp_path, "b", first_uid=1_268_435_456, network_pool="10.214.0.0/16")
    check_range(second)
    assert [claim(first, "x"), claim(second, "x")] == [0, 0]
    third = make_settings(tmp_path, "c", network_pool="10.99.0.0/16")
    with pytest.raises(EngineError):
        check_range(third)
    shutil.rmtree(first.state_folder)
    check_range(third)


def test_a_pool_without_a_part_that_is_free_is_named(tmp_path: Path) -> None:
    first, second = (make_settings(tmp_path, state, network_pool="10.99.0.0/27") for state in "ab")
    assert [claim(first, "x"), claim(second, "x")] == [0, 1]
    with pytest.raises(EngineError, match=r"10.99.0.0/27 has no part left: 2 workspaces"):
        claim(first, "y")


def test_pulled_images_have_a_number_that_no_workspace_gets(tmp_path: Path) -> None:
    both = [make_settings(tmp_path, state, network_pool="10.99.0.0/26") for state in "ab"]
    first = {PulledImages(settings).first_uid - settings.first_uid for settings in both}
    assert first == {3 * 65536, 2 * 65536}
    assert [claim(both[0], "x"), claim(both[1], "x")] == [0, 1]
    with pytest.raises(EngineError, match="no part left"):
        claim(both[0], "y")


@pytest.mark.parametrize("changes", [{"first_uid": 1_500_000_000}, {"network_pool": "10.99.0.0/16"}], ids=str)
def test_another_range_is_refused_while_there_are_workspaces(tmp_path: Path, changes: dict[str, object]) -> None:
    before = make_settings(tmp_path)
    after = make_settings(tmp_path, "a", **changes)
    claim(before, "x")
    pulled = PulledImages(before)
    assert pulled.first_uid > before.first_uid
    pulled.folder.disk.write_text("files of the former range")
    for act in (check_range, claim_existing, lambda settings: claim(settings, "y")):
        with pytest.raises(EngineError, match=r"has workspaces with .*: x; choose first_uid 1000000000 and .* again"):
            act(after)
    assert [claim(before, "x"), claim(before, "y")] == [0, 1]
    assert pulled.folder.disk.exists()
    for uid in "xy":
        shutil.rmtree(open_folder(before.state_folder, uid).root)
    claim_existing(after)
    assert claim(after, "z") == 0
    assert not pulled.folder.disk.exists()


def test_a_damaged_file_gives_no_number_away(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    claim(settings, "x")
    (settings.ranges_folder / ranges.FILE).write_text("[]")
    with pytest.raises(EngineError, match="is damaged"):
        claim(settings, "y")


def test_the_folder_of_an_image_store_counts_like_that_of_a_workspace(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    images = WorkspaceFolder(settings.state_folder / "pulled" / "images-1")
    assert claim_number(settings, images, is_highest=True) == 4095
    assert claim_number(settings, images) == 4095
