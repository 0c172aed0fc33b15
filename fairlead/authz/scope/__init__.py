"""The scope of an access key: the first authorizer. A scope only denies and never grants.

    authorizer     the checks per request, their messages, and the cache of compiled scopes
    compiled       one scope, compiled for lookups: what its entries allow
    matching       the deprecated rules of a scope, compiled one by one
    rule_index     whether a request matches one of many rules
    path_patterns  path patterns in rules
    names          names of this installation, gateway targets, and what every scope allows behind a gateway
    subset         whether one scope allows nothing that another one does not

`docs/access-keys.md` has the decisions as a table; the tests check every route against it.
"""

from fairlead.authz.scope.authorizer import allowing_entry, inside_gateway, is_inside, scoping, touches, within_scope
from fairlead.authz.scope.names import ScopeNames, gateway_target
from fairlead.authz.scope.subset import covers

__all__ = [
    "ScopeNames",
    "allowing_entry",
    "covers",
    "gateway_target",
    "inside_gateway",
    "is_inside",
    "scoping",
    "touches",
    "within_scope",
]
