"""app/agent_sessions.py: with which token and key an agent starts to dial out, and when it does not start."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fairlead.agent.identity import Identity
from fairlead.app.agent_sessions import IDENTITY_FILE, SessionSettings, open_sessions
from fairlead.core.crypto.agent_keys import generate_private_key
from fairlead.settings import StartError
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.local_cluster import LocalCluster


@pytest.fixture
def settings(tmp_path: Path) -> SessionSettings:
    return SessionSettings(
        server="https://fairlead.example.com",
        token="",
        token_file=tmp_path / "token",
        ca_file=None,
        identity_secret="",
        state_folder=tmp_path,
    )


async def start(settings: SessionSettings) -> None:
    cluster = LocalCluster(lambda: ClusterEndpoint("127.0.0.1", 6443, "", "127.0.0.1", "", "t"))
    try:
        async with open_sessions(settings, cluster):
            pass
    finally:
        await cluster.close()


@pytest.mark.parametrize(("content", "problem"), [(None, "no such file"), ("", "is empty"), (" \n", "is empty")])
async def test_an_agent_without_a_token_and_a_key_does_not_start(
    settings: SessionSettings, content: str | None, problem: str
) -> None:
    assert settings.token_file is not None
    if content is not None:
        settings.token_file.write_text(content)
    with pytest.raises(StartError) as raised:
        await start(settings)
    message = str(raised.value)
    assert message.startswith(f"{settings.token_file}: ")
    assert problem in message
    assert str(settings.state_folder / IDENTITY_FILE) in message
    assert "fairlead cluster add NAME --agent" in message


async def test_an_agent_that_dials_out_again_needs_its_key(settings: SessionSettings) -> None:
    with pytest.raises(StartError, match="no join token, and the agent has not joined before"):
        await start(replace(settings, token_file=None))


@pytest.mark.parametrize("content", [None, ""])
async def test_an_agent_that_has_joined_needs_no_token(settings: SessionSettings, content: str | None) -> None:
    assert settings.token_file is not None
    if content is not None:
        settings.token_file.write_text(content)
    identity = Identity("berlin", (generate_private_key(),))
    (settings.state_folder / IDENTITY_FILE).write_bytes(msgspec.json.encode(identity))
    await start(settings)


async def test_an_identity_that_cannot_be_read_now_does_not_stop_the_agent(settings: SessionSettings) -> None:
    """The API server of the cluster may not respond while the node starts: the sessions read it again."""
    (settings.state_folder / IDENTITY_FILE).write_text("{")
    await start(settings)
