"""The scope of an access key: the first authorizer. It takes away, and never gives.

    names.py       what things are called on this server, and the Targets that gateways ask about
    authorizer.py  within_scope, touches, inside_gateway: the questions, and where compiled scopes are kept
    basics.py      what every scope allows behind a gateway that it reaches
    boundary.py    one scope, laid out for quick answers: what its entries allow
    rules.py       the deprecated rules, one by one
    rule_index.py  whether a request matches one of many rules
    paths.py       patterns of paths in rules
    reasons.py     the answers in words: which entry allowed it, or what it would have taken
    covering.py    whether one scope allows nothing that another does not

`docs/access-keys.md` has the decisions as a table, and the tests hold every route against that table.
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
