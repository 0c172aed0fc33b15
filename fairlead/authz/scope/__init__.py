"""The scope of an access key: the first authorizer. A scope only denies and never grants.

    authorizer     the checks per request, their messages, and the cache of compiled scopes
    compiled       one scope, compiled for lookups: what its entries allow
    matching       the deprecated rules of a scope, compiled one by one
    rule_index     whether a request matches one of many rules
    path_patterns  path patterns in rules
    names          names of this installation, gateway targets, and what every scope allows behind a gateway
    subset         whether one scope allows nothing that another one does not

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
from fairlead.authz.scope.names import ScopeNaming, gateway_target
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
