"""Tests of `fairlead.server.http.tls_port`: certificates that are replaced while it serves."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.server.http import tls_port
from tests.harness.certificates import create_authority
from tests.server.http.relayed_port import CLIENT_AUTH, REQUEST, Port, create_port, read_trust_files, serving


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return create_port(tmp_path)


async def test_a_new_server_certificate_closes_no_connection(port: Port) -> None:
    """Not even one with a certificate of an intermediate CA, of which only the connection has the chain."""
    intermediate = create_authority(port.folder / "intermediate", "Intermediate CA", port.clients)
    cert, key = intermediate.issue("alice", "alice", usage=CLIENT_AUTH)
    cert.write_bytes(cert.read_bytes() + intermediate.file.read_bytes())
    async with serving(port):
        assert port.port is not None
        reader, writer = await port.connect((cert, key))
        others = create_authority(port.folder / "others", "Other CA")
        both = port.clients.file.read_bytes() + others.file.read_bytes()
        await port.port.replace(read_trust_files(*port.server.issue("next"), port.clients.file))
        await port.port.replace(replace(port.files, authorities=both))  # one more
        writer.write(REQUEST % b"")
        await asyncio.wait_for(reader.readuntil(b"{}"), 20)
        await port.port.replace(port.files)  # one less: it may be the one that has issued the intermediate CA
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            writer.write(REQUEST % b"")
            await asyncio.wait_for(reader.readuntil(b"{}"), 20)


async def test_new_files_are_used_at_once_and_untrusted_connections_are_closed(port: Port) -> None:
    alice = port.clients.issue("alice", "alice", usage=CLIENT_AUTH)
    others = create_authority(port.folder / "others", "Other CA")
    bob = others.issue("bob", "bob", usage=CLIENT_AUTH)
    async with serving(port):
        assert port.port is not None
        reader, writer = await port.connect(alice)
        writer.write(REQUEST % b"")
        await asyncio.wait_for(reader.readuntil(b"{}"), 20)
        both = replace(port.files, authorities=port.clients.file.read_bytes() + others.file.read_bytes())
        await port.port.replace(both)
        await port.get(bob)
        writer.write(REQUEST % b"")  # alice's CA is still there: the connection stays
        await asyncio.wait_for(reader.readuntil(b"{}"), 20)
        await port.port.replace(read_trust_files(*port.server.issue("next"), others.file))
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            writer.write(REQUEST % b"")
            await asyncio.wait_for(reader.readuntil(b"{}"), 20)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await port.get(alice)
        await port.get(bob)


async def test_handshakes_under_way_end_when_a_ca_is_removed(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_port, "HANDSHAKE_SECONDS", 600)
    others = create_authority(port.folder / "others", "Other CA")
    both = replace(port.files, authorities=port.clients.file.read_bytes() + others.file.read_bytes())
    async with serving(port):
        assert port.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        await port.get(port.clients.issue("alice", "alice", usage=CLIENT_AUTH))  # the silent one is accepted by now
        await port.port.replace(both)
        with pytest.raises(TimeoutError):  # nothing was removed
            await asyncio.wait_for(reader.read(1), 0.5)
        await port.port.replace(port.files)
        assert await asyncio.wait_for(reader.read(), 40) == b""
        writer.close()
