"""What an agent knows: kept over restarts, trusted for a while, forgotten when the server dismisses it."""

import asyncio
from pathlib import Path

import orjson
import pytest

from fairlead.agent.config_cache import AgentConfig, CacheOptions, ConfigCache, InvalidAgentConfig, SpaceState
from fairlead.agent.control_plane import AgentRejected, ControlPlaneError
from fairlead.app.agent import config_cache_file
from fairlead.core.errors import Unavailable
from tests.harness.agent import FakeHome, configuration
from tests.harness.clock import ManualClock


def made(folder: Path, home: FakeHome, clock: ManualClock | None = None) -> ConfigCache:
    return ConfigCache(home, CacheOptions("berlin", folder / "agent-config.json", 3600), clock or ManualClock())


async def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    knowledge = made(tmp_path, FakeHome())
    knowledge.load()
    with pytest.raises(Unavailable, match="no response yet") as starting:
        _ = knowledge.config
    assert starting.value.details.retry_after == 1, "it is being asked at this moment"
    await knowledge.refresh()
    assert knowledge.config.cluster_uid == "uid-of-berlin"
    assert knowledge.config.spaces == {("web", "s"): SpaceState("web-s", frozenset({"uid-of-ada"}))}
    assert knowledge.config.allowed_uids == {"uid-of-ada", "uid-of-ops"}


async def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    home = FakeHome()
    knowledge = made(tmp_path, home)
    await knowledge.refresh()
    before = knowledge.config
    await knowledge.refresh()
    assert home.asked == ["", home.etag] and knowledge.config is before


async def test_another_run_takes_it_up_while_the_server_is_down(tmp_path: Path) -> None:
    home = FakeHome()
    await made(tmp_path, home).refresh()
    home.problem = ControlPlaneError("down")
    later = made(tmp_path, home)
    later.load()
    await later.refresh()
    assert later.config.users["uid-of-ada"].generation == 3
    assert (tmp_path / "agent-config.json").stat().st_mode & 0o777 == 0o600


async def test_knowledge_is_not_trusted_for_ever(tmp_path: Path) -> None:
    home, clock = FakeHome(), ManualClock()
    knowledge = made(tmp_path, home, clock)
    await knowledge.refresh()
    home.problem = ControlPlaneError("down")
    clock.tick(3600)
    await knowledge.refresh()
    assert knowledge.config.cluster == "berlin"
    clock.tick(1)
    with pytest.raises(Unavailable, match="for too long") as refused:
        _ = knowledge.config
    assert not refused.value.details.retry_after, "kubectl would wait for minutes instead of telling its user"
    home.problem = None
    await knowledge.refresh()
    assert knowledge.config.cluster == "berlin"


async def test_an_agent_that_is_dismissed_knows_nothing_any_more(tmp_path: Path) -> None:
    home = FakeHome()
    knowledge = made(tmp_path, home)
    await knowledge.refresh()
    home.problem = AgentRejected("the server responded with status 401")
    await knowledge.refresh()
    with pytest.raises(Unavailable, match="401") as refused:
        _ = knowledge.config
    assert not refused.value.details.retry_after, "kubectl would wait for minutes instead of telling its user"
    later = made(tmp_path, home)
    later.load()
    with pytest.raises(Unavailable):
        _ = later.config


async def test_what_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    home = FakeHome()
    knowledge = made(tmp_path, home)
    await knowledge.refresh()
    before = knowledge.config
    home.config = configuration(cluster="oslo")
    await knowledge.refresh()
    assert knowledge.config is before
    (tmp_path / "agent-config.json").write_bytes(b'{"etag": 1')
    later = made(tmp_path, home)
    later.load()
    with pytest.raises(Unavailable):
        _ = later.config


async def test_many_who_want_news_share_one_question(tmp_path: Path) -> None:
    home, clock = FakeHome(), ManualClock()
    knowledge = made(tmp_path, home, clock)
    await asyncio.gather(*(knowledge.refresh_now() for _ in range(20)))
    assert len(home.asked) == 1
    clock.tick(5)
    await knowledge.refresh_now()
    assert len(home.asked) == 2


@pytest.mark.parametrize(
    "part", ["cluster", "clusterUID", "issuer", "jwks", "spaces", "identities", "apiGroup", "clusterIdentityPrefix"]
)
def test_a_document_that_lacks_a_part_is_none(part: str) -> None:
    config = {name: value for name, value in configuration().items() if name != part}
    with pytest.raises(InvalidAgentConfig):
        AgentConfig.parse(orjson.dumps(config), "berlin")


@pytest.mark.parametrize("prefix", ["system:", "service:", "no-separator", "a b:"])
def test_a_prefix_that_could_be_taken_for_something_else_is_none(prefix: str) -> None:
    with pytest.raises(InvalidAgentConfig, match="clusterIdentityPrefix must"):
        AgentConfig.parse(orjson.dumps(configuration(clusterIdentityPrefix=prefix)), "berlin")


async def test_names_at_the_cluster_are_kept_while_the_server_is_down(tmp_path: Path) -> None:
    home, keeping = FakeHome(configuration(clusterIdentityPrefix="corp:")), CacheOptions("berlin", tmp_path / "k", 3600)
    await ConfigCache(home, keeping, ManualClock()).refresh()
    home.problem = ControlPlaneError("down")
    again = ConfigCache(home, keeping, ManualClock())
    again.load()
    await again.refresh()
    assert again.config.cluster_names.admin_group == "corp:service:admins"


def test_the_cache_of_an_earlier_version_is_used_in_place_until_there_is_a_current_one(tmp_path: Path) -> None:
    former, current = tmp_path / "knowledge.json", tmp_path / "agent-config.json"
    assert config_cache_file(tmp_path) == current
    former.touch()
    assert config_cache_file(tmp_path) == former and former.exists()
    current.touch()
    assert config_cache_file(tmp_path) == current
    assert not former.exists(), "it would be read again after the current one was cleared"
