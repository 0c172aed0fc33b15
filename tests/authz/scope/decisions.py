"""What the tests of scopes have in common: somebody who asks, a server's names, and short ways to ask."""

from dataclasses import replace

from fairlead.authz.scope import inside_gateway, matching_entry, overlaps, within_scope
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeResources, ScopeRule
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from tests.authz.scope.strategies import GROUP, NAMES

ADA = User("ada", ("service:user:ada", "service:user:*", "service:team:core", *AUTHENTICATED_GROUPS), key="ci")
WEB = Scope(projects=("web",))

within = within_scope(NAMES)
touching = overlaps(NAMES)
through = inside_gateway(NAMES)
entry = matching_entry(NAMES)


def inside(scope: Scope | None, target: RequestInfo) -> bool:
    return within(replace(ADA, scope=scope), target) is None


def touched(scope: Scope | None, target: RequestInfo) -> bool:
    return touching(replace(ADA, scope=scope), target)


def refusal(scope: Scope, target: RequestInfo, key: str = "ci") -> str:
    decision = within(replace(ADA, scope=scope, key=key), target)
    assert decision is not None and not decision.allowed
    return decision.reason


def core(verb: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, "", "v1", resource, sub, namespace, name)


def ours(verb: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, GROUP, "v1", resource, sub, namespace, name)


def rule(**parts: object) -> Scope:
    """A scope with one rule."""
    return Scope(rules=(ScopeRule(**parts),))  # type: ignore[arg-type]


def resources(*names: str, group: str = "", objects: tuple[str, ...] = ()) -> tuple[ScopeResources, ...]:
    return (ScopeResources(group, names, objects),)
