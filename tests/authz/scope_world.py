"""What the tests of scopes have in common: somebody who asks, a server's names, and short ways to ask."""

from dataclasses import replace

from fairlead.authz.scope import allowing_entry, inside_gateway, touches, within_scope
from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.scope import Resources, Scope, ScopeRule
from fairlead.core.user import EVERYBODY, User
from tests.authz.scopes_and_targets import GROUP, NAMES

ADA = User("ada", ("service:user:ada", "service:user:*", "service:team:core", *EVERYBODY), key="ci")
WEB = Scope(projects=("web",))

within = within_scope(NAMES)
touching = touches(NAMES)
through = inside_gateway(NAMES)
entry = allowing_entry(NAMES)


def inside(scope: Scope | None, target: Target) -> bool:
    return within(replace(ADA, scope=scope), target) is None


def touched(scope: Scope | None, target: Target) -> bool:
    return touching(replace(ADA, scope=scope), target)


def refusal(scope: Scope, target: Target, key: str = "ci") -> str:
    decision = within(replace(ADA, scope=scope, key=key), target)
    assert decision is not None and not decision.allowed
    return decision.reason


def core(verb: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> Target:
    return Target(verb, "/x", MANAGEMENT, "", "v1", resource, sub, namespace, name)


def ours(verb: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> Target:
    return Target(verb, "/x", MANAGEMENT, GROUP, "v1", resource, sub, namespace, name)


def rule(**parts: object) -> Scope:
    """A scope with one rule."""
    return Scope(rules=(ScopeRule(**parts),))  # type: ignore[arg-type]


def resources(*names: str, group: str = "", objects: tuple[str, ...] = ()) -> tuple[Resources, ...]:
    return (Resources(group, names, objects),)
