"""Tests of `fairlead.upstream.http_proxy`: clusters that only a proxy reaches, and proxies that are not allowed."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import NotConnected, UpstreamRegistry
from fairlead.upstream.errors import AddressBlocked
from fairlead.upstream.http_proxy import MAX_HEAD_BYTES, ProxyError, parse_proxy_url
from fairlead.upstream.upstream import Limits, Request
from tests.fake_cluster.http_proxy import FakeProxy, running_proxy
from tests.fake_cluster.server import FakeCluster
from tests.harness.registry import NAMESPACE, RegistryFixture

LOGIN = f"Basic {b64encode(b'ada:p@ss').decode()}"


def with_proxy(kubeconfig: bytes, url: str, server: str = "") -> bytes:
    config = yaml.safe_load(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    cluster["proxy-url"] = url
    if server:
        cluster |= {"server": server, "tls-server-name": "127.0.0.1"}
    return yaml.safe_dump(config).encode()


@asynccontextmanager
async def connected(
    api: RegistryFixture,
    kubeconfig: bytes,
    *proxies: str,
    networks: tuple[str, ...] = (),
    system_namespace: str = NAMESPACE,
) -> AsyncIterator[UpstreamRegistry]:
    """The Secret is in NAMESPACE."""
    await api.create("Secret", "s", data={"config": b64encode(kubeconfig).decode()})
    await api.create("Cluster", "berlin", spec={"config": {"secretName": "s", "secretNamespace": NAMESPACE}})
    policy = AddressPolicy(networks, lambda: (), proxies)
    upstreams = UpstreamRegistry(api.registry, MANAGEMENT_GROUP, system_namespace, policy, Limits(connect_seconds=20))
    try:
        yield upstreams
    finally:
        await upstreams.close_all()


async def fetch_version(upstreams: UpstreamRegistry) -> bytes:
    response = await upstreams.cluster_upstream("berlin").send(Request("GET", "/version"))
    try:
        return await response.read(10_000)
    finally:
        await response.close()


async def test_a_cluster_whose_name_only_the_proxy_knows_is_reached_through_it(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    """The certificate of the cluster is verified, and the proxy sees neither the token nor requests."""
    target = "berlin.internal:6443"
    hosts = {target: ("127.0.0.1", fake_cluster.port)}
    async with running_proxy(FakeProxy(hosts, LOGIN)) as proxy:
        url = f"http://ada:p%40ss@{proxy.address}"
        kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), url, f"https://{target}")
        async with connected(api, kubeconfig, proxy.address) as upstreams:
            assert b"v1.34.1" in await fetch_version(upstreams)
        assert proxy.heads[0].startswith(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n")
        assert "fake-token" not in "".join(proxy.heads)
    assert fake_cluster.requests[0].header("authorization") == "Bearer fake-token"


async def test_the_address_of_a_cluster_behind_a_proxy_must_be_allowed_too(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    async with running_proxy(FakeProxy()) as proxy:
        kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), f"http://{proxy.address}")
        async with connected(api, kubeconfig, proxy.address) as upstreams:
            with pytest.raises(AddressBlocked):
                await fetch_version(upstreams)
        assert not proxy.heads


async def test_a_proxy_that_the_operator_has_not_listed_is_not_used(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    async with running_proxy(FakeProxy()) as proxy:
        kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), f"http://{proxy.address}")
        async with connected(api, kubeconfig, "127.0.0.1:1", networks=("127.0.0.0/8",)) as upstreams:
            with pytest.raises(NotConnected, match="not in the setting cluster_proxies") as caught:
                await fetch_version(upstreams)
        assert caught.value.reason == "ProxyNotAllowed"
        assert not proxy.heads and not fake_cluster.connection_count


async def test_only_a_secret_of_the_system_namespace_names_a_proxy(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    """Others, who may connect clusters, would reach with it what the address policy denies them."""
    async with running_proxy(FakeProxy()) as proxy:
        kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), f"http://{proxy.address}")
        async with connected(
            api, kubeconfig, proxy.address, networks=("127.0.0.0/8",), system_namespace="service-system"
        ) as upstreams:
            with pytest.raises(NotConnected, match="not in the namespace service-system"):
                await fetch_version(upstreams)
        assert not proxy.heads and not fake_cluster.connection_count


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "requires a user and a password"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP status 503"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not answer as an HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\n", "does not answer as an HTTP proxy"),
        (b"x" * (MAX_HEAD_BYTES + 1), "does not answer as an HTTP proxy"),
    ],
    ids=["no login", "unavailable", "another protocol", "half a head", "a long head"],
)
async def test_a_failing_proxy_is_named_as_the_leg_that_fails(
    api: RegistryFixture, fake_cluster: FakeCluster, answer: bytes, message: str
) -> None:
    async with running_proxy(FakeProxy(answer=answer)) as proxy:
        kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), f"http://{proxy.address}")
        async with connected(api, kubeconfig, proxy.address, networks=("127.0.0.0/8",)) as upstreams:
            with pytest.raises(ProxyError, match=message) as caught:
                await fetch_version(upstreams)
        assert proxy.address not in str(caught.value)


async def test_a_proxy_that_does_not_listen_is_named_as_the_leg_that_fails(
    api: RegistryFixture, fake_cluster: FakeCluster
) -> None:
    async with running_proxy(FakeProxy()) as proxy:
        address = proxy.address
    kubeconfig = with_proxy(fake_cluster.build_kubeconfig(), f"http://{address}")
    async with connected(api, kubeconfig, address, networks=("127.0.0.0/8",)) as upstreams:
        with pytest.raises(ProxyError, match="the proxy in the kubeconfig is unreachable"):
            await fetch_version(upstreams)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://proxy.example.com:3128", "must be an http URL"),
        ("socks5://proxy.example.com:1080", "must be an http URL"),
        ("proxy.example.com:3128", "must be an http URL"),
        ("http://proxy.example.com:3128/path", "and no path"),
        ("http://:3128", "must have a host"),
        ("http://*.example.com:3128", "must have a host"),
        ("http://proxy.example.com:0", "must have a host"),
        ("http://proxy.example.com:99999", "is not a URL"),
        ("http://proxy.example.com?x=1", "query"),
        ("http://canary:pw@proxy.example.com:3128\r\nX: y", "is not a URL"),
        (7, "is not a URL"),
    ],
)
def test_a_proxy_url_that_is_ambiguous_or_unsupported_is_rejected_without_quoting_it(url: object, message: str) -> None:
    proxy, problem = parse_proxy_url(url)
    assert proxy is None and problem is not None and message in problem
    assert "canary" not in problem


def test_the_password_of_a_proxy_is_not_in_its_representation() -> None:
    proxy, problem = parse_proxy_url("http://ada:canary@[2001:db8::1]")
    assert problem is None and proxy is not None
    assert (str(proxy), "canary" in repr(proxy)) == ("[2001:db8::1]:80", False)
    assert proxy.authorization not in repr(proxy)
