"""is_superset: whether one scope covers another, which limits the keys that a key may create."""

import pytest

from fairlead.authz.scope import is_superset
from fairlead.core.scope import Scope, ScopeRole, ScopeRule
from tests.authz.scope.decisions import WEB, resources, scope_with_rule


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (None, None, True),
        (None, WEB, True),
        (WEB, None, False),
        (scope_with_rule(), None, False),
        (WEB, WEB, True),
        (WEB, Scope(), True),
        (Scope(), WEB, False),
        (WEB, Scope(projects=("web", "lab")), False),
        (Scope(projects=("*",)), Scope(projects=("web", "lab", "*")), True),
        (WEB, Scope(projects=("*",)), False),
        (WEB, Scope(spaces=(("web", "dev"), ("web", "*")), virtual_clusters=(("web", "ci"),)), True),
        (WEB, Scope(spaces=(("lab", "dev"),)), False),
        (Scope(projects=("*",)), Scope(spaces=(("lab", "*"),)), True),
        (Scope(spaces=(("web", "*"),)), Scope(spaces=(("web", "dev"),)), True),
        (Scope(spaces=(("web", "dev"),)), Scope(spaces=(("web", "*"),)), False),
        (Scope(spaces=(("web", "*"),)), Scope(virtual_clusters=(("web", "ci"),)), False),
        (Scope(spaces=(("web", "*"),)), WEB, False),
        (Scope(clusters=("*",)), Scope(clusters=("berlin",)), True),
        (Scope(clusters=("berlin",)), Scope(clusters=("oslo",)), False),
        (WEB, Scope(allow_cli=True, projects=("web",)), False),
        (Scope(allow_cli=True, projects=("web",)), WEB, True),
        (scope_with_rule(), Scope(True, ("*",), clusters=("*",), rules=(ScopeRule(("get",)),)), True),
        (scope_with_rule(), Scope(roles=(ScopeRole("agent"),)), False),
        (Scope(roles=(ScopeRole("agent"),)), Scope(roles=(ScopeRole("agent"),)), True),
        (scope_with_rule(targets=("Management",)), WEB, False),
        (scope_with_rule(verbs=("get", "list")), scope_with_rule(verbs=("get",)), True),
        (scope_with_rule(verbs=("get",)), scope_with_rule(), False),
        (scope_with_rule(verbs=("get",)), scope_with_rule(verbs=("*",)), False),
        (
            scope_with_rule(resources=resources("*")),
            scope_with_rule(resources=resources("configmaps", "secrets/status")),
            True,
        ),
        (
            scope_with_rule(resources=resources("configmaps/*")),
            scope_with_rule(resources=resources("configmaps/status")),
            True,
        ),
        (
            scope_with_rule(resources=resources("*/status")),
            scope_with_rule(resources=resources("configmaps/status")),
            True,
        ),
        (
            scope_with_rule(resources=resources("configmaps/*")),
            scope_with_rule(resources=resources("configmaps")),
            False,
        ),
        (scope_with_rule(resources=resources("configmaps")), scope_with_rule(resources=resources()), False),
        (scope_with_rule(resources=resources("configmaps")), scope_with_rule(), False),
        (
            scope_with_rule(namespaces=("a", "b")),
            scope_with_rule(namespaces=("a",), resources=resources("secrets")),
            True,
        ),
        (scope_with_rule(namespaces=("a",)), scope_with_rule(resources=resources("secrets")), False),
        (scope_with_rule(object_names=("a",)), scope_with_rule(object_names=("a", "b")), False),
        (
            scope_with_rule(resources=resources("secrets", objects=("a",))),
            scope_with_rule(resources=resources("secrets"), object_names=("a",)),
            True,
        ),
        (scope_with_rule(paths=("/logs/*",)), scope_with_rule(paths=("/logs/a", "/logs/b/*")), True),
        (scope_with_rule(paths=("/logs/*",)), scope_with_rule(paths=("/logs",)), False),
        (scope_with_rule(paths=("/logs/a",)), scope_with_rule(paths=("/logs/*",)), False),
        (scope_with_rule(cluster="berlin"), scope_with_rule(cluster="berlin", verbs=("get",)), True),
        (scope_with_rule(cluster="berlin"), scope_with_rule(), False),
        (
            scope_with_rule(virtual_clusters=(("", "p-web"),)),
            scope_with_rule(virtual_clusters=(("ci", "p-web"),)),
            True,
        ),
        (scope_with_rule(virtual_clusters=(("ci", ""),)), scope_with_rule(virtual_clusters=(("", ""),)), False),
        (scope_with_rule(targets=("Cluster", "Management")), scope_with_rule(targets=("Cluster",)), True),
    ],
)
def test_t4_a_scope_covers_exactly_the_narrower_scopes(
    outer: Scope | None, inner: Scope | None, expected: bool
) -> None:
    assert is_superset(outer, inner) is expected
