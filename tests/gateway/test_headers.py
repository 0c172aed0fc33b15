"""Who a request is from is ours to say, whatever its headers say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.gateway.headers import (
    MAX_CACHED_IDENTITY_CHARS,
    _cached_impersonation_headers,
    forwarded_headers,
    forwarded_subprotocols,
)
from tests.harness.calls import FakeHeaders

NAMES = ClusterIdentityMapper("fairlead:")
ANNA = User("anna", ("devs", "service:team:blue", "system:authenticated", "service:user:anna"), uid="u-1")


def sent(headers: Mapping[str, str | Sequence[str]], user: User = ANNA) -> list[tuple[str, str]]:
    return forwarded_headers(FakeHeaders(headers), user, NAMES, "")


def test_a_request_is_made_as_its_user_with_groups_and_uid() -> None:
    assert sent({}) == [
        ("impersonate-user", "fairlead:anna"),
        ("impersonate-group", "fairlead:devs"),
        ("impersonate-group", "fairlead:service:team:blue"),
        ("impersonate-group", "fairlead:service:user:anna"),
        ("impersonate-group", "system:authenticated"),
        ("impersonate-uid", "u-1"),
    ]


def test_what_kubernetes_clients_need_passes() -> None:
    wanted = {
        "accept": ["application/json;as=Table", "application/json"],
        "content-type": "application/apply-patch+yaml",
        "accept-encoding": "gzip",
        "if-none-match": '"1"',
        "user-agent": "kubectl/v1.34",
        "kubectl-command": "kubectl get",
    }
    found = sent(wanted)[6:]
    assert found == [
        (name, each) for name, value in wanted.items() for each in ([value] if isinstance(value, str) else value)
    ]


IDENTITY = [
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


@pytest.mark.parametrize("name", IDENTITY)
def test_t18_identity_and_routing_headers_never_pass_in_any_spelling(name: str) -> None:
    spellings = {
        name,
        name.upper(),
        name.title(),
        name.replace("-", "_"),
        name.replace("-", "_", 1),
        f"{name} ",
        f" {name}",
    }
    evil = {spelling: ["system:masters", "root"] for spelling in spellings}
    assert sent(evil) == sent({})


def test_t23_the_callers_own_credential_stays_here() -> None:
    found = sent({"authorization": "Bearer secret", "cookie": "session=secret", "accept": "*/*"})
    assert "secret" not in str(found)
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    assert forwarded_subprotocols(("v5.channel.k8s.io", token, "v4.channel.k8s.io")) == [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
    ]


def test_t18_groups_that_mean_something_to_kubernetes_itself_are_left_out() -> None:
    groups = ("system:masters", "system:nodes", "system:serviceaccounts", "service:admins", "system:authenticated")
    found = [value for name, value in sent({}, User("root", groups)) if name == "impersonate-group"]
    assert found == ["fairlead:service:admins", "system:authenticated"]


@pytest.mark.parametrize(
    "name",
    ["", "system:admin", "system:serviceaccount:kube-system:x", "a\r\nimpersonate-group: b", "ä", " anna", "a\x00"],
)
def test_t18_a_name_that_a_cluster_could_take_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(Forbidden, match="use an access key of a user or a team"):
        sent({}, User(name))


def test_groups_and_uids_that_no_header_can_have_are_left_out() -> None:
    user = User("anna", ("ok", "a\r\nx: y", "grün", ""), uid="1\n2")
    assert sent({}, user) == [
        ("impersonate-user", "fairlead:anna"),
        ("impersonate-group", "fairlead:ok"),
        ("impersonate-group", "system:authenticated"),
    ]


def test_the_audit_id_is_ours() -> None:
    found = forwarded_headers(FakeHeaders({"audit-id": "theirs"}), ANNA, NAMES, "ours")
    assert [value for name, value in found if name == "audit-id"] == ["ours"]


ROOT = User("root", ("system:masters",), key="roots")


def extras(user: User) -> list[tuple[str, str]]:
    return [pair for pair in sent({}, user) if pair[0].startswith("impersonate-extra-")]


def test_t19_a_cluster_is_told_who_really_asks() -> None:
    extra = "impersonate-extra-service.sh%2Fimpersonator", "fairlead:root"
    assert extras(replace(ANNA, impersonator=ROOT)) == [extra]
    assert extras(ANNA) == []


def test_extra_values_that_were_asked_for_go_along() -> None:
    """Names as a kube-apiserver reads them: what no header name may have is percent-encoded."""
    asked = (("acme.com/a b%", ("1", "2 3")), ("scopes", ("x",)), ("ä", ("",)))
    assert extras(replace(ANNA, extra=asked)) == [
        ("impersonate-extra-acme.com%2Fa%20b%25", "1"),
        ("impersonate-extra-acme.com%2Fa%20b%25", "2 3"),
        ("impersonate-extra-scopes", "x"),
        ("impersonate-extra-%C3%A4", ""),
    ]


def test_t19_who_really_asks_cannot_be_replaced() -> None:
    forged = replace(ANNA, extra=(("service.sh/impersonator", ("anna",)),), impersonator=ROOT)
    assert extras(forged) == [
        ("impersonate-extra-service.sh%2Fimpersonator", "fairlead:root"),
        ("impersonate-extra-service.sh%2Fimpersonator", "anna"),
    ]


def test_t19_a_name_that_cannot_be_told_does_not_impersonate() -> None:
    with pytest.raises(Forbidden, match="cannot impersonate through a gateway"):
        sent({}, replace(ANNA, impersonator=User("a\r\nb")))


@pytest.mark.parametrize(
    "large",
    [
        {"groups": ("g" * MAX_CACHED_IDENTITY_CHARS,)},
        {"groups": ("",) * (MAX_CACHED_IDENTITY_CHARS + 1)},
        {"uid": "u" * (MAX_CACHED_IDENTITY_CHARS + 1)},
        {"extra": (("key", ("v" * MAX_CACHED_IDENTITY_CHARS,)),)},
        {"impersonator": User("r" * MAX_CACHED_IDENTITY_CHARS)},
    ],
)
def test_an_identity_of_much_text_is_not_kept(large: dict[str, Any]) -> None:
    kept = _cached_impersonation_headers.cache_info
    before = kept().currsize
    sent({}, replace(ANNA, uid="an identity that was not seen before"))
    assert kept().currsize == before + 1
    sent({}, replace(ANNA, **large))
    assert kept().currsize == before + 1
    _cached_impersonation_headers.cache_clear()
