"""server.audit.redaction: every use of a credential is recorded, whatever the policy says (T-30)."""

import pytest

from fairlead.core.call import RequestInfo
from fairlead.kinds import KINDS
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import USER
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.registry.kind import MANAGEMENT_GROUP, Action, Catalog, Kind, Sensitivity
from fairlead.registry.schema import obj, string
from fairlead.server.audit.policy import COMPLETE, METADATA, NONE, REQUEST_RESPONSE, Policy, PolicyRule
from fairlead.server.audit.redaction import CredentialRequests
from tests.harness.audit import CATALOG, MOUNT, OK, object_path, open_audit, reply_with

MANAGEMENT = f"{MOUNT}/apis/{MANAGEMENT_GROUP}/v1"
CANARY = "canary-c2c4a7d1-not-to-be-logged"

RECORD_NOTHING = Policy((PolicyRule(NONE),))
OMIT_COMPLETE = Policy((PolicyRule(METADATA, omit_stages=frozenset({COMPLETE})),))

CREDENTIALS = [
    ("GET", object_path(SECRET, "a"), ""),
    ("GET", object_path(SECRET), ""),
    ("GET", object_path(SECRET), "watch=1"),
    ("GET", f"{MOUNT}/api/v1/secrets", ""),
    ("POST", object_path(SECRET), ""),
    ("PUT", object_path(SECRET, "a"), ""),
    ("PATCH", object_path(SECRET, "a"), ""),
    ("POST", object_path(OWNED_ACCESS_KEY), ""),
    ("PUT", object_path(OWNED_ACCESS_KEY, "a"), ""),
    ("POST", object_path(OWNED_ACCESS_KEY, "a", "rotate"), ""),
    ("POST", object_path(USER, "alice", "profile"), ""),
    ("GET", object_path(USER, "alice", "accesskeys"), ""),
    ("POST", f"{MANAGEMENT}/directclusterendpointtokens", ""),
    ("GET", f"{MANAGEMENT}/runners/a/accesskey", ""),
    ("POST", f"{MANAGEMENT}/runners/a/rotatekey", ""),
    ("GET", f"{MANAGEMENT}/namespaces/n/devpodworkspaceinstances/a/credentials", ""),
    ("GET", f"{MANAGEMENT}/clusters/a/accesskey", ""),
    ("POST", f"{MANAGEMENT}/namespaces/n/virtualclusterinstances/a/kubeconfig", ""),
    ("POST", f"{MOUNT}/api/v1/namespaces/n/serviceaccounts/a/token", ""),
    ("POST", "/auth/password/login", ""),
    ("GET", "/auth/callback", ""),
]


@pytest.mark.parametrize("policy", [RECORD_NOTHING, OMIT_COMPLETE])
@pytest.mark.parametrize(("method", "path", "query"), CREDENTIALS)
async def test_t_30_every_use_of_a_credential_is_recorded(method: str, path: str, query: str, policy: Policy) -> None:
    async with open_audit(reply_with(200, {"spec": {"key": CANARY}}), policy) as audit:
        await audit(method, path, {"password": CANARY}, query=query)
    (event,) = audit.completed_events()
    assert (event["level"], event["user"]["username"]) == ("Metadata", "alice")
    assert event["user"]["extra"]["service.sh/access-key"] == ["laptop"]
    assert event["sourceIPs"] == ["192.0.2.7"]
    assert event["requestReceivedTimestamp"] and event["requestURI"].startswith(path)
    assert CANARY not in str(audit.events)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", object_path(CONFIGMAP, "a")),
        ("POST", object_path(CONFIGMAP)),
        ("DELETE", object_path(SECRET, "a")),
        ("GET", object_path(OWNED_ACCESS_KEY)),
        ("GET", "/version"),
    ],
)
async def test_other_requests_follow_the_policy(method: str, path: str) -> None:
    async with open_audit(OK, RECORD_NOTHING) as audit:
        await audit(method, path)
    assert audit.events == []


async def test_a_higher_level_of_the_policy_is_kept() -> None:
    async with open_audit(OK, Policy((PolicyRule(REQUEST_RESPONSE, omit_stages=frozenset({COMPLETE})),))) as audit:
        await audit("GET", object_path(SECRET, "a"))
    assert [event["level"] for event in audit.completed_events()] == ["RequestResponse"]


@pytest.mark.parametrize("code", [200, 201, 403, 404, 422, 500])
async def test_t_30_rejected_requests_are_recorded_as_well(code: int) -> None:
    async with open_audit(reply_with(code, {"kind": "Status", "message": CANARY}), RECORD_NOTHING) as audit:
        await audit("POST", object_path(OWNED_ACCESS_KEY), {"spec": {"key": CANARY}})
    assert [event["responseStatus"]["code"] for event in audit.completed_events()] == [code]


async def test_unauthenticated_requests_are_recorded_as_well() -> None:
    async with open_audit(OK, RECORD_NOTHING, user=None) as audit:
        await audit("GET", object_path(SECRET, "a"))
    assert [event["responseStatus"]["code"] for event in audit.completed_events()] == [401]


@pytest.mark.parametrize("kind", [kind for kind in CATALOG.kinds if kind.sensitive], ids=lambda kind: kind.name)
def test_every_kind_with_sensitive_fields_is_matched(kind: Kind) -> None:
    credentials = CredentialRequests(CATALOG)
    for verb in ("create", "update", "patch"):
        assert credentials.matches(RequestInfo(verb, "/", "m", kind.group, kind.version, kind.plural))
    is_readable = not set(kind.sensitive) <= set(kind.write_only)
    for verb in ("get", "list", "watch"):
        assert credentials.matches(RequestInfo(verb, "/", "m", kind.group, kind.version, kind.plural)) is is_readable


def test_an_action_that_returns_a_kind_with_sensitive_fields_is_matched() -> None:
    spec = {"spec": obj("", secret=string())}
    result_kind = Kind(
        "Result",
        "results",
        False,
        spec,
        "",
        sensitive=("spec.secret",),
        persisted=False,
        sensitivity=Sensitivity.NORMAL,
    )
    kind = Kind(
        "Thing",
        "things",
        False,
        {},
        "",
        actions=(Action("open", ("create",), result_kind),),
        sensitivity=Sensitivity.NORMAL,
    )
    credentials = CredentialRequests(Catalog((kind,)))
    target = RequestInfo("create", "/", "m", kind.group, "v1", "things", "open", "", "a")
    assert credentials.matches(target)
    assert not CredentialRequests(Catalog(KINDS)).matches(target)
