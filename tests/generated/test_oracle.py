"""Tests of `oracle.py`: it detects the faults of responses, without which a clean run would prove nothing."""

import pytest

from tests.generated.identities import EVERYTHING, IN_PROJECT, KEY, NOTHING, Identities, Identity
from tests.generated.oracle import Oracle
from tests.generated.templates import Template
from tests.requests.raw_http import RawRequest, RawResponse

ADMIN, MEMBER = Identity("admin", "key-of-admin", EVERYTHING), Identity("member", "key-of-member", IN_PROJECT)
UNPRIVILEGED, ANONYMOUS = (
    Identity("user without permissions", "key-of-unprivileged", NOTHING),
    Identity("anonymous", "", NOTHING),
)
ORACLE = Oracle(Identities((ADMIN, MEMBER, UNPRIVILEGED, ANONYMOUS), "canary-1"), frozenset({"selfsubjectreviews"}))
API = "/kubernetes/management/api/v1"
JSON = (("content-type", "application/json"),)


def find_faults(identity: Identity, method: str, path: str, status: int, body: bytes = b"{}") -> list[str]:
    return list(ORACLE.find_faults(identity, RawRequest(method, path), RawResponse(status, JSON, body)))


def test_only_the_administrator_may_see_a_canary() -> None:
    body = b'{"canary":"canary-1"}'
    assert find_faults(ADMIN, "GET", f"{API}/secrets", 200, body) == []
    for identity in (MEMBER, UNPRIVILEGED, ANONYMOUS):
        assert find_faults(identity, "GET", f"{API}/secrets", 200, body) == [f"{identity.name} can read the vault"]


@pytest.mark.parametrize(
    ("identity", "path", "is_allowed"),
    [
        (MEMBER, f"{API}/namespaces/service-p-gen/configmaps", True),
        (UNPRIVILEGED, f"{API}/namespaces/service-p-gen/configmaps", False),
        (MEMBER, f"{API}/namespaces/vault/configmaps", False),
        (MEMBER, f"{API}/namespaces/service-p-gen/%2e%2e/vault/configmaps", False),
        (MEMBER, f"https://other.test{API}/namespaces/fuzz-0/configmaps/a", False),
        (MEMBER, f"{API}/namespaces", False),
        (UNPRIVILEGED, "/kubernetes/management/apis/management.service.sh/v1/ownedaccesskeys", True),
        (UNPRIVILEGED, "/kubernetes/management/apis/authentication.k8s.io/v1/selfsubjectreviews", True),
        (UNPRIVILEGED, "/kubernetes/management/apis/management.service.sh/v1/projects", False),
    ],
)
def test_a_successful_write_without_permission_is_a_fault(identity: Identity, path: str, is_allowed: bool) -> None:
    assert (find_faults(identity, "POST", path, 201) == []) is is_allowed
    assert find_faults(ADMIN, "POST", path, 201) == []


def test_an_access_key_in_a_response_is_a_fault() -> None:
    assert find_faults(ADMIN, "GET", f"{API}/secrets", 200, b'{"a":"key-of-member"}') == [
        "an access key is in the response"
    ]


@pytest.mark.parametrize(("status", "is_allowed"), [(500, False), (502, True), (503, True), (504, True)])
def test_a_server_error_without_an_external_cause_is_a_fault(status: int, is_allowed: bool) -> None:
    cause = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"x","message":"cluster away","code":%d}'
    assert (find_faults(ADMIN, "GET", f"{API}/pods", status, cause % status) == []) is is_allowed
    assert find_faults(ADMIN, "GET", f"{API}/pods", status, (cause % status).replace(b"cluster away", b"oops")) != []


def test_a_missing_response_is_a_fault() -> None:
    assert find_faults(ADMIN, "GET", API, 0, b"timeout") == ["no response: timeout"]


def test_the_administrator_does_not_write_to_the_vault_or_permissions() -> None:
    fields = (("Authorization", f"Bearer {KEY}"),)
    for path in ("/apis/rbac.authorization.k8s.io/v1/clusterroles", f"{API}/namespaces/vault/secrets"):
        template = Template(0, RawRequest("POST", path, headers=fields), "vault" in path)
        assert template.build_request(ADMIN) is None
        request = template.build_request(MEMBER)
        assert request is not None and request.headers == (("Authorization", "Bearer key-of-member"),)
        anonymous_request = template.build_request(ANONYMOUS)
        assert anonymous_request is not None and anonymous_request.headers == ()
