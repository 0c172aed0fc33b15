"""Tests of `fairlead.server.http.origins`: headers that name a user are removed on arrival."""

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.http.origins import IdentityHeaderFilter
from fairlead.server.http.request import RequestHeaders
from tests.server.http.test_asgi import serve_with

STANDARD = ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-scopes", "x-remote-anything"]
UNDERSCORES = ["x_remote_user", "x-remote_group", "x_remote-uid", "x_remote_extra_scopes"]


@pytest.mark.parametrize("name", [*STANDARD, *UNDERSCORES])
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_headers_of_front_proxies_never_reach_a_handler(name: str, kind: str) -> None:
    seen: list[Call] = []
    headers = [(b"host", b"x"), (name.encode(), b"admin"), (b"x-remotely", b"1"), (name.encode(), b"other")]

    def serve(call: Call) -> Reply:
        seen.append(call)
        return Reply(200)

    await serve_with(serve, type=kind, headers=headers)
    (call,) = seen
    assert set(call.headers.keys()) == {"host", "x-remotely"}
    assert call.headers.get_all(name) == []
    assert not call.headers.has_prefix("x-remote-")


def test_headers_that_are_configured_instead_are_removed_as_well() -> None:
    clean = IdentityHeaderFilter(("X-Forwarded-User", "X-Groups", "X-Detail-")).clean
    pairs = [(b"x-forwarded-user", b"a"), (b"x_groups", b"b"), (b"x-detail-a", b"c"), (b"x-remote-user", b"d")]
    kept = [(b"x-forwarded-for", b"e"), (b"x-groups-b", b"f"), (b"user-agent", b"g")]
    assert clean(RequestHeaders([*pairs, *kept])).pairs == kept


def test_requests_without_such_headers_are_not_copied() -> None:
    headers = RequestHeaders([(b"host", b"x"), (b"user-agent", b"kubectl")])
    assert IdentityHeaderFilter().clean(headers) is headers
