"""Whom we trust, and who we are."""

import os
import socket
import ssl
import threading
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace

import pytest
import yaml

from fairlead.upstream.errors import TlsError
from fairlead.upstream.upstream import Limits, Upstream
from tests.fake_cluster.certificates import authority
from tests.fake_cluster.server import ClusterBehaviour, FakeCluster, server_context
from tests.upstream.upstreams import access_to, as_it_is, asked, got, reaching


async def refused(far: FakeCluster, **access: str) -> str:
    async with reaching(far, **access) as upstream:
        with pytest.raises(TlsError) as caught:
            await asked(upstream, "/version")
        assert upstream.in_use == 0
    assert far.seen == []
    return caught.value.message


async def test_a_certificate_for_another_name_is_not_trusted() -> None:
    with FakeCluster(manner=ClusterBehaviour(names=("other.example",))) as far:
        assert "another IP address" in await refused(far)
        assert "another host name" in await refused(far, tls_server_name="third.example")
        async with reaching(far, tls_server_name="other.example") as upstream:
            await got(upstream, "/version")


async def test_a_certificate_that_has_run_out_is_not_trusted() -> None:
    with FakeCluster(manner=ClusterBehaviour(days=-1)) as far:
        assert "expired" in await refused(far)


async def test_a_certificate_from_a_stranger_is_not_trusted() -> None:
    with FakeCluster(manner=ClusterBehaviour(issuer=authority("stranger"))) as far:
        assert "certificate-authority-data" in await refused(far)
        async with reaching(far, ca_data=authority("stranger").pem) as upstream:
            await got(upstream, "/version")


async def test_the_machines_authorities_hold_where_the_kubeconfig_names_none(fake_cluster: FakeCluster) -> None:
    assert "not trusted" in await refused(fake_cluster, ca_data="")


async def test_certificates_that_are_none_are_said_to_be(fake_cluster: FakeCluster) -> None:
    assert "kubeconfig" in await refused(fake_cluster, ca_data="nonsense")
    assert "kubeconfig" in await refused(fake_cluster, client_certificate="nonsense", client_key="nonsense")


async def test_a_client_certificate_is_shown_where_there_is_one() -> None:
    with FakeCluster(manner=ClusterBehaviour(wants_certificate=True)) as far:
        user = yaml.safe_load(far.kubeconfig(certificate=True))["users"][0]["user"]
        pair = {f"client_{name}": b64decode(user[f"client-{name}-data"]).decode() for name in ("certificate", "key")}
        async with reaching(far, token="", **pair) as upstream:
            await got(upstream, "/version")
        assert far.seen[0].all("authorization") == []


async def test_a_cluster_that_wants_a_certificate_says_so_after_the_handshake(fake_cluster: FakeCluster) -> None:
    """With TLS 1.3 our side is done by then. asyncio's servers forget to send the alert; Kubernetes' does not."""
    context = server_context(fake_cluster.manner, authority())
    context.load_verify_locations(cadata=fake_cluster.ca_pem)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_shake_hands, args=(listener, context))
        thread.start()
        access = access_to(fake_cluster, token="")
        upstream = Upstream(replace(access, port=listener.getsockname()[1]), as_it_is, Limits())
        with pytest.raises(TlsError, match="client certificate"):
            await asked(upstream, "/version")
        thread.join()


def _shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Listens on after the alert: closing at once would reset the connection, and the alert might get lost."""
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as wrapped:
        with suppress(ssl.SSLError):
            wrapped.do_handshake()
        while os.read(wrapped.fileno(), 65536):
            pass
