"""The scope of an access key: the first authorizer. A scope only denies and never grants.

    authorizer        the checks per request, their messages, and the cache of compiled scopes
    compiled          one scope, compiled for lookups: what its entries allow
    rules             the deprecated rules of a scope, compiled and indexed
    gateway_requests  targets of gateways, and the basic requests behind them that every scope allows
    subset            whether one scope allows nothing that another one does not

`docs/access-keys.md` describes the decisions; `tests/authz/scope/matrix.md` has all of them, checked for every route.
"""

from fairlead.authz.scope.authorizer import (
    build_scope_checks,
    inside_gateway,
    is_within_scope,
    matching_entry,
    overlaps,
    within_scope,
)
from fairlead.authz.scope.compiled import ScopeNaming
from fairlead.authz.scope.gateway_requests import gateway_target
from fairlead.authz.scope.subset import is_superset

__all__ = [
    "ScopeNaming",
    "build_scope_checks",
    "gateway_target",
    "inside_gateway",
    "is_superset",
    "is_within_scope",
    "matching_entry",
    "overlaps",
    "within_scope",
]
