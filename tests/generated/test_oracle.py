"""The judge of generated requests sees what it is there for: otherwise a clean run would say nothing."""

import pytest

from tests.generated.identities import EVERYTHING, IN_PROJECT, KEY, NOTHING, Cast, Identity
from tests.generated.oracle import Oracle
from tests.generated.templates import Template
from tests.security.raw_http import Answer, Ask

ADMIN, MEMBER = Identity("admin", "key-of-admin", EVERYTHING), Identity("member", "key-of-member", IN_PROJECT)
NOBODY, STRANGER = Identity("user without rights", "key-of-nobody", NOTHING), Identity("nobody", "", NOTHING)
ORACLE = Oracle(Cast((ADMIN, MEMBER, NOBODY, STRANGER), "canary-1"), frozenset({"selfsubjectreviews"}))
API = "/kubernetes/management/api/v1"
JSON = (("content-type", "application/json"),)


def faults(identity: Identity, method: str, path: str, status: int, body: bytes = b"{}") -> list[str]:
    return list(ORACLE.faults(identity, Ask(method, path), Answer(status, JSON, body)))


def test_a_canary_is_for_the_administrator_only() -> None:
    body = b'{"canary":"canary-1"}'
    assert faults(ADMIN, "GET", f"{API}/secrets", 200, body) == []
    for identity in (MEMBER, NOBODY, STRANGER):
        assert faults(identity, "GET", f"{API}/secrets", 200, body) == [f"{identity.name} sees what is in the vault"]


@pytest.mark.parametrize(
    ("identity", "path", "is_fine"),
    [
        (MEMBER, f"{API}/namespaces/service-p-gen/configmaps", True),
        (NOBODY, f"{API}/namespaces/service-p-gen/configmaps", False),
        (MEMBER, f"{API}/namespaces/vault/configmaps", False),
        (MEMBER, f"{API}/namespaces/service-p-gen/%2e%2e/vault/configmaps", False),
        (MEMBER, f"https://other.test{API}/namespaces/storm-0/configmaps/a", False),
        (MEMBER, f"{API}/namespaces", False),
        (NOBODY, "/kubernetes/management/apis/management.service.sh/v1/ownedaccesskeys", True),
        (NOBODY, "/kubernetes/management/apis/authentication.k8s.io/v1/selfsubjectreviews", True),
        (NOBODY, "/kubernetes/management/apis/management.service.sh/v1/projects", False),
    ],
)
def test_a_write_that_succeeds_where_it_must_not_is_a_breach(identity: Identity, path: str, is_fine: bool) -> None:
    assert (faults(identity, "POST", path, 201) == []) is is_fine
    assert faults(ADMIN, "POST", path, 201) == []


def test_a_key_of_anybody_in_an_answer_is_a_leak() -> None:
    assert faults(ADMIN, "GET", f"{API}/secrets", 200, b'{"a":"key-of-member"}') == ["an access key is in the answer"]


@pytest.mark.parametrize(("status", "is_fine"), [(500, False), (502, True), (503, True), (504, True)])
def test_an_error_of_the_server_needs_a_cause_elsewhere(status: int, is_fine: bool) -> None:
    cause = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"x","message":"cluster away","code":%d}'
    assert (faults(ADMIN, "GET", f"{API}/pods", status, cause % status) == []) is is_fine
    assert faults(ADMIN, "GET", f"{API}/pods", status, (cause % status).replace(b"cluster away", b"oops")) != []


def test_no_answer_is_a_fault() -> None:
    assert faults(ADMIN, "GET", API, 0, b"no answer") == ["no answer: no answer"]


def test_the_administrator_leaves_the_vault_and_rights_alone() -> None:
    fields = (("Authorization", f"Bearer {KEY}"),)
    for path in ("/apis/rbac.authorization.k8s.io/v1/clusterroles", f"{API}/namespaces/vault/secrets"):
        made = Template(0, Ask("POST", path, headers=fields), "vault" in path)
        assert made.sent_by(ADMIN) is None
        sent = made.sent_by(MEMBER)
        assert sent is not None and sent.headers == (("Authorization", "Bearer key-of-member"),)
        anonymous = made.sent_by(STRANGER)
        assert anonymous is not None and anonymous.headers == ()
