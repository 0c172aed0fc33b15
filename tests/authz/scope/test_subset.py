"""One scope inside another: what a key may hand on."""

import pytest

from fairlead.authz.scope import is_superset
from fairlead.core.scope import Scope, ScopeRole, ScopeRule
from tests.authz.scope.decisions import WEB, resources, rule


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (None, None, True),
        (None, WEB, True),
        (WEB, None, False),
        (rule(), None, False),
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
        (rule(), Scope(True, ("*",), clusters=("*",), rules=(ScopeRule(("get",)),)), True),
        (rule(), Scope(roles=(ScopeRole("agent"),)), False),
        (Scope(roles=(ScopeRole("agent"),)), Scope(roles=(ScopeRole("agent"),)), True),
        (rule(targets=("Management",)), WEB, False),
        (rule(verbs=("get", "list")), rule(verbs=("get",)), True),
        (rule(verbs=("get",)), rule(), False),
        (rule(verbs=("get",)), rule(verbs=("*",)), False),
        (rule(resources=resources("*")), rule(resources=resources("configmaps", "secrets/status")), True),
        (rule(resources=resources("configmaps/*")), rule(resources=resources("configmaps/status")), True),
        (rule(resources=resources("*/status")), rule(resources=resources("configmaps/status")), True),
        (rule(resources=resources("configmaps/*")), rule(resources=resources("configmaps")), False),
        (rule(resources=resources("configmaps")), rule(resources=resources()), False),
        (rule(resources=resources("configmaps")), rule(), False),
        (rule(namespaces=("a", "b")), rule(namespaces=("a",), resources=resources("secrets")), True),
        (rule(namespaces=("a",)), rule(resources=resources("secrets")), False),
        (rule(object_names=("a",)), rule(object_names=("a", "b")), False),
        (
            rule(resources=resources("secrets", objects=("a",))),
            rule(resources=resources("secrets"), object_names=("a",)),
            True,
        ),
        (rule(paths=("/logs/*",)), rule(paths=("/logs/a", "/logs/b/*")), True),
        (rule(paths=("/logs/*",)), rule(paths=("/logs",)), False),
        (rule(paths=("/logs/a",)), rule(paths=("/logs/*",)), False),
        (rule(cluster="berlin"), rule(cluster="berlin", verbs=("get",)), True),
        (rule(cluster="berlin"), rule(), False),
        (rule(virtual_clusters=(("", "p-web"),)), rule(virtual_clusters=(("ci", "p-web"),)), True),
        (rule(virtual_clusters=(("ci", ""),)), rule(virtual_clusters=(("", ""),)), False),
        (rule(targets=("Cluster", "Management")), rule(targets=("Cluster",)), True),
    ],
)
def test_t4_a_scope_covers_what_plainly_reaches_no_further(
    outer: Scope | None, inner: Scope | None, expected: bool
) -> None:
    assert is_superset(outer, inner) is expected
