"""Tests of `fairlead.authn.request_headers`: users that a front proxy names."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead.authn.request_headers import MAX_GROUPS, RequestHeaderAuthenticator, RequestHeaderConfig
from fairlead.core.call import CLIENT, FRONT_PROXY, Call, TlsPeer
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User
from tests.harness.access_keys import KeyDirectory
from tests.harness.calls import FakeHeaders

CONFIG = RequestHeaderConfig(frozenset({"front-proxy", "aggregator"}))
LINKING = replace(CONFIG, links_users=True)
USER, GROUP = "x-remote-user", "x-remote-group"


class Proxy:
    """A front proxy, whose certificate is valid for a minute."""

    def __init__(self, directory: KeyDirectory, config: RequestHeaderConfig | None = CONFIG) -> None:
        self._directory = directory
        self._authenticate = RequestHeaderAuthenticator(lambda: config, directory.principals, directory.clock)

    def certificate(self, name: str = "front-proxy") -> TlsPeer:
        return TlsPeer(FRONT_PROXY, name, (), self._directory.clock.now().timestamp() + 60, "f")

    def send(self, headers: dict[str, str | Sequence[str]], peer: TlsPeer | None = None, method: str = "GET") -> User:
        user = self.try_send(headers, peer or self.certificate(), method)
        assert user is not None
        return user

    def try_send(
        self, headers: dict[str, str | Sequence[str]], peer: TlsPeer | None, method: str = "GET"
    ) -> User | None:
        async def no_body() -> bytes:
            return b""

        return self._authenticate(Call(method, "/", {}, FakeHeaders(headers), no_body, peer=peer))


async def test_the_user_is_the_one_that_the_headers_name(directory: KeyDirectory) -> None:
    headers: dict[str, str | Sequence[str]] = {
        USER: ["ada", "other"],
        GROUP: ["devs", "ops", "devs"],
        "x-remote-uid": "17",
        "x-remote-extra-example.com%2fScopes": ["a", "b"],
        "x-remote-extra-acme": "1",
    }
    user = Proxy(directory).send(headers)
    assert (user.name, user.groups, user.uid) == ("ada", ("devs", "ops", "system:authenticated"), "")
    assert user.extra == (("acme", ("1",)), ("example.com/scopes", ("a", "b")))
    with_uid = replace(CONFIG, uid_headers=("x-remote-uid",))
    assert Proxy(directory, with_uid).send(headers).uid == "17"


async def test_the_same_user_is_the_same_object(directory: KeyDirectory) -> None:
    proxy = Proxy(directory)
    assert proxy.send({USER: "ada", GROUP: "a"}) is proxy.send({USER: "ada", GROUP: "a"})
    assert proxy.send({USER: "ada", GROUP: "a"}) != proxy.send({USER: "ada", GROUP: "b"})


async def test_a_front_proxy_may_name_an_administrator_but_no_groups_of_the_server(directory: KeyDirectory) -> None:
    user = Proxy(directory).send({USER: "root", GROUP: ["system:masters"]})
    assert user.is_admin
    user = Proxy(directory).send({USER: "eve", GROUP: ["service:admins", "service:user:root", "service:team:core"]})
    assert user.groups == ("system:authenticated",) and not user.is_admin


@pytest.mark.parametrize("config", [CONFIG, LINKING])
async def test_service_accounts_of_the_proxy_are_not_those_of_this_server(
    directory: KeyDirectory, config: RequestHeaderConfig
) -> None:
    groups = ["system:serviceaccounts", "system:serviceaccounts:default", "host:system:serviceaccounts:x", "host:a"]
    user = Proxy(directory, config).send({USER: "system:serviceaccount:default:ci", GROUP: groups})
    assert user.name == "host:system:serviceaccount:default:ci"
    renamed = "host:system:serviceaccounts", "host:system:serviceaccounts:default"
    assert user.groups == (*renamed, "host:a", "system:authenticated")


@pytest.mark.parametrize("name", ["other", "Front-Proxy", "front-proxy.example.com", ""])
async def test_a_certificate_with_another_name_is_rejected(directory: KeyDirectory, name: str) -> None:
    proxy = Proxy(directory)
    with pytest.raises(Unauthorized, match="allowed front proxy"):
        proxy.send({USER: "root", GROUP: "system:masters"}, proxy.certificate(name))


async def test_without_a_configuration_nothing_authenticates(directory: KeyDirectory) -> None:
    with pytest.raises(Unauthorized):
        Proxy(directory, None).send({USER: "root"})


async def test_connections_without_such_a_certificate_are_left_to_other_authenticators(directory: KeyDirectory) -> None:
    proxy = Proxy(directory)
    headers: dict[str, str | Sequence[str]] = {USER: "root", GROUP: "system:masters"}
    assert proxy.try_send(headers, None) is None
    assert proxy.try_send(headers, replace(proxy.certificate(), purpose=CLIENT)) is None


async def test_an_expired_certificate_is_rejected(directory: KeyDirectory) -> None:
    proxy = Proxy(directory)
    with pytest.raises(Unauthorized, match="expired"):
        proxy.send({USER: "ada"}, replace(proxy.certificate(), expires=directory.clock.now().timestamp()))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {GROUP: "system:masters"},
        {USER: ""},
        {USER: []},
        {USER: "service:team:core"},
        {USER: "host:system:serviceaccount:default:ci"},
        {USER: "a\tb"},
        {USER: " ada"},
        {USER: "ada", GROUP: ["ok", "b\x7fd"]},
        {USER: "ada", GROUP: [f"g{n}" for n in range(MAX_GROUPS + 1)]},
        {"authorization": "Bearer key"},
        {"x_remote_user": "root"},
    ],
)
async def test_a_request_without_a_usable_user_is_rejected(
    directory: KeyDirectory, headers: dict[str, str | Sequence[str]]
) -> None:
    with pytest.raises(Unauthorized):
        Proxy(directory).send(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {USER: "system:anonymous"},
        {USER: "system:anonymous", GROUP: "system:unauthenticated"},
        {USER: "ada", GROUP: ["devs", "system:unauthenticated"]},
        {USER: "system:anonymous", GROUP: "system:masters"},
    ],
)
@pytest.mark.parametrize("config", [CONFIG, LINKING])
async def test_a_user_that_the_proxy_has_not_authenticated_is_rejected(
    directory: KeyDirectory, config: RequestHeaderConfig, headers: dict[str, str | Sequence[str]]
) -> None:
    with pytest.raises(Unauthorized, match="has not authenticated the user"):
        Proxy(directory, config).send(headers)


async def test_other_headers_can_be_configured(directory: KeyDirectory) -> None:
    config = RequestHeaderConfig(frozenset({"front-proxy"}), ("x-a", "x-b"), ("x-g", "x-h"), ("x-e-",))
    user = Proxy(directory, config).send({"x-b": "ada", "x-g": "1", "x-h": "2", "x-e-k": "v", USER: "root"})
    assert (user.name, user.groups[:2], user.extra) == ("ada", ("1", "2"), (("k", ("v",)),))


async def test_names_are_not_linked_to_users_unless_that_is_configured(directory: KeyDirectory) -> None:
    await directory.add_user("admin", groups=["system:masters"])
    assert Proxy(directory).send({USER: "admin"}) == User("admin", ("system:authenticated",))
    linked = Proxy(directory, LINKING).send({USER: "admin", GROUP: "devs"})
    assert linked.is_admin and linked.uid == "uid-of-admin"
    assert {"service:user:admin", "devs"} <= set(linked.groups)
    assert Proxy(directory, LINKING).send({USER: "unknown"}) == User("unknown", ("system:authenticated",))


async def test_a_linked_user_that_is_disabled_is_rejected(directory: KeyDirectory) -> None:
    await directory.add_user("ada", disabled=True)
    with pytest.raises(Unauthorized, match="disabled"):
        Proxy(directory, LINKING).send({USER: "ada"})


async def test_a_browser_behind_the_proxy_cannot_be_used_by_another_site(directory: KeyDirectory) -> None:
    proxy = Proxy(directory)
    with pytest.raises(Forbidden):
        proxy.send({USER: "ada", "origin": "https://evil.example", "host": "fairlead"}, method="POST")
    assert proxy.send({USER: "ada", "origin": "https://fairlead", "host": "fairlead"}, method="POST").name == "ada"
