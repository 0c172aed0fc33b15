"""Tests of `fairlead.gateway.headers`: the server, not the client, sets the identity of a forwarded request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.gateway.headers import (
    MAX_CACHED_IDENTITY_CHARS,
    _cached_impersonation_headers,
    forwarded_headers,
    forwarded_subprotocols,
    impersonation_headers,
)
from tests.harness.calls import FakeHeaders

IDENTITY_MAPPER = ClusterIdentityMapper("fairlead:")
ANNA = User("anna", ("devs", "service:team:blue", "system:authenticated", "service:user:anna"), uid="u-1")


def forward_headers(headers: Mapping[str, str | Sequence[str]], user: User = ANNA) -> list[tuple[str, str]]:
    return forwarded_headers(FakeHeaders(headers), impersonation_headers(user, IDENTITY_MAPPER), "")


def test_a_request_impersonates_its_user_with_groups_and_uid() -> None:
    assert forward_headers({}) == [
        ("impersonate-user", "fairlead:anna"),
        ("impersonate-group", "fairlead:devs"),
        ("impersonate-group", "fairlead:service:team:blue"),
        ("impersonate-group", "fairlead:service:user:anna"),
        ("impersonate-group", "system:authenticated"),
        ("impersonate-uid", "u-1"),
    ]


def test_headers_that_kubernetes_clients_need_are_forwarded() -> None:
    client_headers = {
        "accept": ["application/json;as=Table", "application/json"],
        "content-type": "application/apply-patch+yaml",
        "accept-encoding": "gzip",
        "if-none-match": '"1"',
        "user-agent": "kubectl/v1.34",
        "kubectl-command": "kubectl get",
    }
    forwarded = forward_headers(client_headers)[6:]
    assert forwarded == [
        (name, item)
        for name, value in client_headers.items()
        for item in ([value] if isinstance(value, str) else value)
    ]


IDENTITY_HEADERS = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-user",
    "x-remote-user",
    "x-remote-group",
    "x-remote-uid",
    "x-remote-extra-scopes",
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-scopes",
    "x-original-url",
    "x-client-ip",
    "connection",
    "upgrade",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "audit-id",
]


@pytest.mark.parametrize("name", IDENTITY_HEADERS)
def test_t18_identity_and_routing_headers_are_not_forwarded_in_any_spelling(name: str) -> None:
    spellings = {
        name,
        name.upper(),
        name.title(),
        name.replace("-", "_"),
        name.replace("-", "_", 1),
        f"{name} ",
        f" {name}",
    }
    hostile_headers = {spelling: ["system:masters", "root"] for spelling in spellings}
    assert forward_headers(hostile_headers) == forward_headers({})


def test_t23_the_callers_credential_is_not_forwarded() -> None:
    forwarded = forward_headers({"authorization": "Bearer secret", "cookie": "session=secret", "accept": "*/*"})
    assert "secret" not in str(forwarded)
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    assert forwarded_subprotocols(("v5.channel.k8s.io", token, "v4.channel.k8s.io")) == [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
    ]


def test_t18_groups_with_a_meaning_in_kubernetes_are_left_out() -> None:
    groups = ("system:masters", "system:nodes", "system:serviceaccounts", "service:admins", "system:authenticated")
    forwarded_groups = [
        value for name, value in forward_headers({}, User("root", groups)) if name == "impersonate-group"
    ]
    assert forwarded_groups == ["fairlead:service:admins", "system:authenticated"]


@pytest.mark.parametrize(
    "name",
    ["", "system:admin", "system:serviceaccount:kube-system:x", "a\r\nimpersonate-group: b", "ä", " anna", "a\x00"],
)
def test_t18_a_user_name_that_is_reserved_or_invalid_in_a_cluster_is_rejected(name: str) -> None:
    with pytest.raises(Forbidden, match="use an access key of a user or a team"):
        forward_headers({}, User(name))


def test_groups_and_uids_that_are_invalid_in_headers_are_left_out() -> None:
    user = User("anna", ("ok", "a\r\nx: y", "grün", ""), uid="1\n2")
    assert forward_headers({}, user) == [
        ("impersonate-user", "fairlead:anna"),
        ("impersonate-group", "fairlead:ok"),
        ("impersonate-group", "system:authenticated"),
    ]


def test_the_audit_id_is_that_of_the_server() -> None:
    forwarded = forwarded_headers(FakeHeaders({"audit-id": "of-the-client"}), (), "of-the-server")
    assert [value for name, value in forwarded if name == "audit-id"] == ["of-the-server"]


ROOT = User("root", ("system:masters",), key="roots")


def forwarded_extras(user: User) -> list[tuple[str, str]]:
    return [pair for pair in forward_headers({}, user) if pair[0].startswith("impersonate-extra-")]


def test_t19_the_impersonator_is_forwarded_as_an_extra_value() -> None:
    extra = "impersonate-extra-service.sh%2Fimpersonator", "fairlead:root"
    assert forwarded_extras(replace(ANNA, impersonator=ROOT)) == [extra]
    assert forwarded_extras(ANNA) == []


def test_extra_values_of_the_user_are_forwarded() -> None:
    """Names as a kube-apiserver parses them: characters that are invalid in header names are percent-encoded."""
    extra = (("acme.com/a b%", ("1", "2 3")), ("scopes", ("x",)), ("ä", ("",)))
    assert forwarded_extras(replace(ANNA, extra=extra)) == [
        ("impersonate-extra-acme.com%2Fa%20b%25", "1"),
        ("impersonate-extra-acme.com%2Fa%20b%25", "2 3"),
        ("impersonate-extra-scopes", "x"),
        ("impersonate-extra-%C3%A4", ""),
    ]


def test_t19_the_impersonator_cannot_be_replaced() -> None:
    forged = replace(ANNA, extra=(("service.sh/impersonator", ("anna",)),), impersonator=ROOT)
    assert forwarded_extras(forged) == [
        ("impersonate-extra-service.sh%2Fimpersonator", "fairlead:root"),
        ("impersonate-extra-service.sh%2Fimpersonator", "anna"),
    ]


def test_t19_an_impersonator_whose_name_is_invalid_in_headers_is_rejected() -> None:
    with pytest.raises(Forbidden, match="cannot impersonate through a gateway"):
        forward_headers({}, replace(ANNA, impersonator=User("a\r\nb")))


@pytest.mark.parametrize(
    "large_fields",
    [
        {"groups": ("g" * MAX_CACHED_IDENTITY_CHARS,)},
        {"groups": ("",) * (MAX_CACHED_IDENTITY_CHARS + 1)},
        {"uid": "u" * (MAX_CACHED_IDENTITY_CHARS + 1)},
        {"extra": (("key", ("v" * MAX_CACHED_IDENTITY_CHARS,)),)},
        {"impersonator": User("r" * MAX_CACHED_IDENTITY_CHARS)},
    ],
)
def test_a_large_identity_is_not_cached(large_fields: dict[str, Any]) -> None:
    cache_info = _cached_impersonation_headers.cache_info
    before = cache_info().currsize
    forward_headers({}, replace(ANNA, uid="an identity that was not seen before"))
    assert cache_info().currsize == before + 1
    forward_headers({}, replace(ANNA, **large_fields))
    assert cache_info().currsize == before + 1
    _cached_impersonation_headers.cache_clear()
