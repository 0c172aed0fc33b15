"""Tests of `fairlead.authn.client_certificates`: who the user of a certificate is."""

from dataclasses import replace

import pytest

from fairlead.authn.client_certificates import CERTIFICATE_ANNOTATION, ClientCertificateAuthenticator
from fairlead.authn.principals import USERS
from fairlead.core.call import CLIENT, FRONT_PROXY, Call, TlsPeer
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User
from tests.harness.access_keys import KeyDirectory
from tests.harness.calls import FakeHeaders

URL = "https://fairlead.example.com"


def certificate(directory: KeyDirectory, name: str, *organizations: str, seconds: float = 60) -> TlsPeer:
    return TlsPeer(CLIENT, name, organizations, directory.clock.now().timestamp() + seconds, f"{name}{organizations}")


def build_call(peer: TlsPeer | None, method: str = "GET", **headers: str) -> Call:
    async def no_body() -> bytes:
        return b""

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(method, "/", {}, FakeHeaders(named), no_body, peer=peer)


def authenticate(directory: KeyDirectory, call: Call) -> User | None:
    return ClientCertificateAuthenticator(directory.principals, directory.clock, URL)(call)


async def test_a_certificate_means_the_user_of_its_common_name_with_its_groups_and_teams(
    directory: KeyDirectory,
) -> None:
    await directory.add_user("alice", groups=["devs"])
    await directory.add_team("core", users=["alice"])
    call = build_call(certificate(directory, "alice", "ops", "devs"))
    user, known = authenticate(directory, call), directory.principals.find_user("alice")
    assert user is not None and known is not None
    assert (user.name, user.uid, user.key, user.scope) == ("alice", "uid-of-alice", "", None)
    assert set(user.groups) == {*known.groups, "ops"} and "service:team:core" in user.groups
    assert call.annotations[CERTIFICATE_ANNOTATION].startswith("sha256:")


@pytest.mark.parametrize(
    "organization",
    [
        "system:masters",
        "service:admins",
        "system:authenticated",
        "service:user:bob",
        "service:team:red",
        "system:x",
        "host:system:serviceaccounts",
    ],
)
async def test_an_organization_never_gives_reserved_groups(directory: KeyDirectory, organization: str) -> None:
    await directory.add_user("alice")
    user = authenticate(directory, build_call(certificate(directory, "alice", organization)))
    known = directory.principals.find_user("alice")
    assert user is not None and known is not None
    assert user.groups == known.groups and not user.is_admin


async def test_a_user_that_is_unknown_disabled_or_removed_is_rejected(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    peer, authenticator = (
        certificate(directory, "alice"),
        ClientCertificateAuthenticator(directory.principals, directory.clock),
    )
    assert authenticator(build_call(peer)) is not None
    await directory.add_user("alice", disabled=True)
    with pytest.raises(Unauthorized, match="active user"):
        authenticator(build_call(peer))
    await directory.remove(USERS, "alice")
    with pytest.raises(Unauthorized, match="active user"):
        authenticator(build_call(peer))
    for name in ("", "system:serviceaccount:default:x", "service:team:core", "system:admin"):
        with pytest.raises(Unauthorized):
            authenticator(build_call(certificate(directory, name)))


async def test_an_expired_certificate_is_rejected_on_an_open_connection(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    with pytest.raises(Unauthorized, match="expired"):
        authenticate(directory, build_call(certificate(directory, "alice", seconds=0)))


async def test_a_certificate_and_an_access_key_together_are_rejected(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    call = build_call(certificate(directory, "alice"), authorization="Bearer x")
    with pytest.raises(Unauthorized, match="not both"):
        authenticate(directory, call)


async def test_other_connections_are_left_to_other_authenticators(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    assert authenticate(directory, build_call(None)) is None
    proxy = replace(certificate(directory, "alice"), purpose=FRONT_PROXY)
    assert authenticate(directory, build_call(proxy)) is None


async def test_a_browser_cannot_be_used_by_another_site(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    peer = certificate(directory, "alice")
    for headers in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}, {"origin": "null"}):
        with pytest.raises(Forbidden):
            authenticate(directory, build_call(peer, "POST", **headers))
        with pytest.raises(Forbidden):
            authenticate(directory, build_call(peer, upgrade="websocket", **headers))
        assert authenticate(directory, build_call(peer, **headers)) is not None
    assert authenticate(directory, build_call(peer, "POST", origin=URL)) is not None
    assert authenticate(directory, build_call(peer, "POST")) is not None
