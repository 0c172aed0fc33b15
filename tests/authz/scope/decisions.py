"""Shared by the tests of scopes: a user, builders of requests and scopes, and the decisions about them."""

from dataclasses import replace

from fairlead.authz.scope import inside_gateway, matching_entry, overlaps, within_scope
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeResources, ScopeRule
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from tests.authz.scope.strategies import GROUP, NAMES

ADA = User("ada", ("service:user:ada", "service:user:*", "service:team:core", *AUTHENTICATED_GROUPS), key="ci")
WEB = Scope(projects=("web",))

check_scope = within_scope(NAMES)
overlaps_scope = overlaps(NAMES)
check_gateway = inside_gateway(NAMES)
find_entry = matching_entry(NAMES)


def is_in_scope(scope: Scope | None, target: RequestInfo) -> bool:
    return check_scope(replace(ADA, scope=scope), target) is None


def is_filtered(scope: Scope | None, target: RequestInfo) -> bool:
    return overlaps_scope(replace(ADA, scope=scope), target)


def denial_reason(scope: Scope, target: RequestInfo, key: str = "ci") -> str:
    decision = check_scope(replace(ADA, scope=scope, key=key), target)
    assert decision is not None and not decision.allowed
    return decision.reason


def core_request(verb: str, resource: str, namespace: str = "", name: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, "", "v1", resource, subresource, namespace, name)


def management_request(
    verb: str, resource: str, namespace: str = "", name: str = "", subresource: str = ""
) -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, GROUP, "v1", resource, subresource, namespace, name)


def scope_with_rule(**fields: object) -> Scope:
    """A scope with a single rule."""
    return Scope(rules=(ScopeRule(**fields),))  # type: ignore[arg-type]


def resources(*names: str, group: str = "", objects: tuple[str, ...] = ()) -> tuple[ScopeResources, ...]:
    return (ScopeResources(group, names, objects),)
