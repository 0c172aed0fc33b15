"""Tests of TLS in `fairlead.upstream.upstream`: server certificates and client certificates."""

import gc
import os
import socket
import ssl
import threading
import time
import weakref
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from fairlead.upstream.dial import DirectDialer, share_ssl_context
from fairlead.upstream.errors import TlsError
from fairlead.upstream.upstream import Limits, dialled_upstream
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.server import ClusterOptions, FakeCluster, build_server_context
from tests.harness.eventually import eventually
from tests.upstream.upstreams import build_endpoint, connect_upstream, fetch_body, resolve_unchanged, send_request


async def expect_tls_error(fake_cluster: FakeCluster, **fields: str) -> str:
    async with connect_upstream(fake_cluster, **fields) as upstream:
        with pytest.raises(TlsError) as caught:
            await send_request(upstream, "/version")
        assert upstream.in_use == 0
    assert fake_cluster.requests == []
    return caught.value.message


async def test_a_certificate_for_another_name_is_not_trusted() -> None:
    with FakeCluster(options=ClusterOptions(names=("other.example",))) as fake_cluster:
        assert "another IP address" in await expect_tls_error(fake_cluster)
        assert "another host name" in await expect_tls_error(fake_cluster, tls_server_name="third.example")
        async with connect_upstream(fake_cluster, tls_server_name="other.example") as upstream:
            await fetch_body(upstream, "/version")


async def test_an_expired_certificate_is_not_trusted() -> None:
    with FakeCluster(options=ClusterOptions(days=-1)) as fake_cluster:
        assert "expired" in await expect_tls_error(fake_cluster)


async def test_a_certificate_of_an_unknown_authority_is_not_trusted() -> None:
    with FakeCluster(options=ClusterOptions(issuer=get_authority("unknown"))) as fake_cluster:
        assert "certificate-authority-data" in await expect_tls_error(fake_cluster)
        async with connect_upstream(fake_cluster, ca_data=get_authority("unknown").pem) as upstream:
            await fetch_body(upstream, "/version")


async def test_the_system_authorities_are_used_if_the_kubeconfig_names_none(fake_cluster: FakeCluster) -> None:
    assert "not trusted" in await expect_tls_error(fake_cluster, ca_data="")


async def test_invalid_certificates_in_the_kubeconfig_are_an_error(fake_cluster: FakeCluster) -> None:
    assert "kubeconfig" in await expect_tls_error(fake_cluster, ca_data="nonsense")
    assert "kubeconfig" in await expect_tls_error(fake_cluster, client_certificate="nonsense", client_key="nonsense")


async def test_a_client_certificate_is_presented_if_there_is_one() -> None:
    with FakeCluster(options=ClusterOptions(requires_client_certificate=True)) as fake_cluster:
        user = yaml.safe_load(fake_cluster.build_kubeconfig(certificate=True))["users"][0]["user"]
        client_files = {
            f"client_{name}": b64decode(user[f"client-{name}-data"]).decode() for name in ("certificate", "key")
        }
        async with connect_upstream(fake_cluster, token="", **client_files) as upstream:
            await fetch_body(upstream, "/version")
        assert fake_cluster.requests[0].header_values("authorization") == []


async def test_the_event_loop_is_not_held_by_the_signature_of_a_large_client_key() -> None:
    key = rsa.generate_private_key(65537, 3072)
    pair = get_authority().issue(common_name="fake-client", key=key)
    signing = _measure_cpu(lambda: key.sign(b"x", padding.PSS(padding.MGF1(SHA256()), 32), SHA256()))
    with FakeCluster(options=ClusterOptions(requires_client_certificate=True)) as fake_cluster:
        files = {"client_certificate": pair.certificate, "client_key": pair.key}
        async with connect_upstream(fake_cluster, token="", **files) as upstream:
            await fetch_body(upstream, "/version")
            upstream.close_idle()
            start = time.thread_time()
            await fetch_body(upstream, "/version")
            assert time.thread_time() - start < signing


def _measure_cpu(work: Callable[[], object]) -> float:
    """The shortest of three times: other load lengthens them."""
    times = []
    for _ in range(3):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


async def test_a_missing_client_certificate_is_reported_after_the_handshake(fake_cluster: FakeCluster) -> None:
    """With TLS 1.3, the client has finished by then. Servers of asyncio do not send the alert; Kubernetes does."""
    context = build_server_context(fake_cluster.options, get_authority())
    context.load_verify_locations(cadata=fake_cluster.ca_pem)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_handshake, args=(listener, context))
        thread.start()
        endpoint = build_endpoint(fake_cluster, token="", port=listener.getsockname()[1])
        upstream = dialled_upstream(endpoint, DirectDialer(endpoint, resolve_unchanged), Limits())
        with pytest.raises(TlsError, match="client certificate"):
            await send_request(upstream, "/version")
        thread.join()


def _serve_handshake(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Reads on after the alert: closing at once would reset the connection, and the alert might get lost."""
    connection, _ = listener.accept()
    with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as tls_connection:
        with suppress(ssl.SSLError):
            tls_connection.do_handshake()
        while os.read(tls_connection.fileno(), 65536):
            pass


async def test_a_context_is_built_once_for_all_connections_that_need_the_same(fake_cluster: FakeCluster) -> None:
    endpoint = build_endpoint(fake_cluster)
    context = await share_ssl_context(endpoint)
    assert await share_ssl_context(replace(endpoint, port=1, token="other")) is context
    assert await share_ssl_context(replace(endpoint, ca_data="")) is not context
    reference = weakref.ref(context)
    del context
    await eventually(lambda: is_collected(reference), 10)  # the thread that built it may have it for a moment


def is_collected(reference: weakref.ref[ssl.SSLContext]) -> bool:
    gc.collect()
    return reference() is None
