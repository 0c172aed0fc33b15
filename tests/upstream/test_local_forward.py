"""Tests of `fairlead.upstream.local_forward`: another program connects through the dialer, and makes TLS itself."""

import asyncio
import ssl

import pytest

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.dial import build_ssl_context
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.local_forward import local_forward
from tests.upstream.test_tunnel import Place, place

__all__ = ["place"]


async def request_version(endpoint: ClusterEndpoint) -> bytes:
    reader, writer = await asyncio.open_connection(
        endpoint.host, endpoint.port, ssl=build_ssl_context(endpoint), server_hostname=endpoint.tls_server_name
    )
    writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    try:
        return await reader.readuntil(b"platform")
    finally:
        writer.close()


async def test_a_program_reaches_the_virtual_cluster_at_a_local_address(place: Place) -> None:
    await place.connect()
    endpoint = parse_kubeconfig(place.inner.build_kubeconfig(server="https://localhost:8443"))
    async with local_forward(place.dialer, endpoint) as local:
        assert (local.host, local.tls_server_name, local.token) == ("127.0.0.1", "localhost", endpoint.token)
        for answer in await asyncio.gather(*(request_version(local) for _ in range(20))):
            assert b"gitVersion" in answer
    with pytest.raises(OSError):
        await request_version(local)


async def test_a_virtual_cluster_that_is_gone_closes_the_connection(place: Place) -> None:
    await place.connect()
    endpoint = parse_kubeconfig(place.inner.build_kubeconfig(server="https://localhost:8443"))
    place.pods.remove_pod("dev-0")
    async with local_forward(place.dialer, endpoint) as local:
        with pytest.raises((OSError, ssl.SSLError, asyncio.IncompleteReadError)):
            await request_version(local)
