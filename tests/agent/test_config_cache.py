"""The agent's config cache: written to a file, valid for a limited time, cleared when the server rejects the agent."""

import asyncio
from pathlib import Path

import orjson
import pytest

from fairlead.agent.config_cache import AgentConfig, CacheOptions, ConfigCache, InvalidAgentConfig, SpaceState
from fairlead.agent.control_plane import AgentRejected, ControlPlaneError
from fairlead.core.errors import Unavailable
from tests.harness.agent import FakeControlPlane, build_configuration
from tests.harness.clock import ManualClock


def build_cache(folder: Path, control_plane: FakeControlPlane, clock: ManualClock | None = None) -> ConfigCache:
    return ConfigCache(
        control_plane, CacheOptions("berlin", folder / "agent-config.json", 3600), clock or ManualClock()
    )


async def test_there_is_no_config_before_the_first_refresh(tmp_path: Path) -> None:
    cache = build_cache(tmp_path, FakeControlPlane())
    cache.load()
    with pytest.raises(Unavailable, match="no response yet") as error:
        _ = cache.config
    assert error.value.details.retry_after == 1, "the first refresh is under way"
    await cache.refresh()
    assert cache.config.cluster_uid == "uid-of-berlin"
    assert cache.config.spaces == {("web", "s"): SpaceState("web-s", frozenset({"uid-of-ada"}))}
    assert cache.config.allowed_uids == {"uid-of-ada", "uid-of-ops"}


async def test_an_unchanged_config_is_not_parsed_again(tmp_path: Path) -> None:
    control_plane = FakeControlPlane()
    cache = build_cache(tmp_path, control_plane)
    await cache.refresh()
    before = cache.config
    await cache.refresh()
    assert control_plane.requested_etags == ["", control_plane.etag] and cache.config is before


async def test_a_restarted_agent_loads_the_cached_config_while_the_server_is_down(tmp_path: Path) -> None:
    control_plane = FakeControlPlane()
    await build_cache(tmp_path, control_plane).refresh()
    control_plane.error = ControlPlaneError("down")
    restarted = build_cache(tmp_path, control_plane)
    restarted.load()
    await restarted.refresh()
    assert restarted.config.users["uid-of-ada"].generation == 3
    assert (tmp_path / "agent-config.json").stat().st_mode & 0o777 == 0o600


async def test_a_cached_config_expires(tmp_path: Path) -> None:
    control_plane, clock = FakeControlPlane(), ManualClock()
    cache = build_cache(tmp_path, control_plane, clock)
    await cache.refresh()
    control_plane.error = ControlPlaneError("down")
    clock.tick(3600)
    await cache.refresh()
    assert cache.config.cluster == "berlin"
    clock.tick(1)
    with pytest.raises(Unavailable, match="for too long") as error:
        _ = cache.config
    assert not error.value.details.retry_after, "kubectl would retry for minutes instead of reporting the error"
    control_plane.error = None
    await cache.refresh()
    assert cache.config.cluster == "berlin"


async def test_a_rejected_agent_clears_its_config(tmp_path: Path) -> None:
    control_plane = FakeControlPlane()
    cache = build_cache(tmp_path, control_plane)
    await cache.refresh()
    control_plane.error = AgentRejected("the server responded with status 401")
    await cache.refresh()
    with pytest.raises(Unavailable, match="401") as error:
        _ = cache.config
    assert not error.value.details.retry_after, "kubectl would retry for minutes instead of reporting the error"
    restarted = build_cache(tmp_path, control_plane)
    restarted.load()
    with pytest.raises(Unavailable):
        _ = restarted.config


async def test_an_invalid_config_is_ignored(tmp_path: Path) -> None:
    control_plane = FakeControlPlane()
    cache = build_cache(tmp_path, control_plane)
    await cache.refresh()
    before = cache.config
    control_plane.config = build_configuration(cluster="oslo")
    await cache.refresh()
    assert cache.config is before
    (tmp_path / "agent-config.json").write_bytes(b'{"etag": 1')
    restarted = build_cache(tmp_path, control_plane)
    restarted.load()
    with pytest.raises(Unavailable):
        _ = restarted.config


async def test_concurrent_refreshes_share_one_request(tmp_path: Path) -> None:
    control_plane, clock = FakeControlPlane(), ManualClock()
    cache = build_cache(tmp_path, control_plane, clock)
    await asyncio.gather(*(cache.refresh_now() for _ in range(20)))
    assert len(control_plane.requested_etags) == 1
    clock.tick(5)
    await cache.refresh_now()
    assert len(control_plane.requested_etags) == 2


@pytest.mark.parametrize(
    "field", ["cluster", "clusterUID", "issuer", "jwks", "spaces", "identities", "apiGroup", "clusterIdentityPrefix"]
)
def test_a_config_without_a_required_field_is_invalid(field: str) -> None:
    config = {name: value for name, value in build_configuration().items() if name != field}
    with pytest.raises(InvalidAgentConfig):
        AgentConfig.parse(orjson.dumps(config), "berlin")


@pytest.mark.parametrize("prefix", ["system:", "service:", "no-separator", "a b:"])
def test_an_ambiguous_identity_prefix_is_invalid(prefix: str) -> None:
    with pytest.raises(InvalidAgentConfig, match="clusterIdentityPrefix must"):
        AgentConfig.parse(orjson.dumps(build_configuration(clusterIdentityPrefix=prefix)), "berlin")


async def test_the_identity_prefix_is_cached_while_the_server_is_down(tmp_path: Path) -> None:
    control_plane, options = (
        FakeControlPlane(build_configuration(clusterIdentityPrefix="corp:")),
        CacheOptions("berlin", tmp_path / "k", 3600),
    )
    await ConfigCache(control_plane, options, ManualClock()).refresh()
    control_plane.error = ControlPlaneError("down")
    restarted = ConfigCache(control_plane, options, ManualClock())
    restarted.load()
    await restarted.refresh()
    assert restarted.config.cluster_names.admin_group == "corp:service:admins"
