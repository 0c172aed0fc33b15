"""The scope authorizer: names, users, migrations, filtered lists and messages, beyond the decision table.

The decisions about every route with every shape of scope are in `test_matrix.py`.
"""

import gc
from dataclasses import replace

import pytest

from fairlead.authz.scope import authorizer as authorizer_module
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeRole, ScopeRule
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from tests.authz.scope.decisions import (
    ADA,
    WEB,
    check_scope,
    core_request,
    denial_reason,
    find_entry,
    is_filtered,
    is_in_scope,
    management_request,
    resources,
    scope_with_rule,
)
from tests.authz.scope.strategies import GROUP

# --- identity ---


@pytest.mark.parametrize("scope", [Scope(), Scope(roles=(ScopeRole("agent"),)), WEB])
def test_self_reviews_are_in_every_scope(scope: Scope) -> None:
    assert is_in_scope(scope, management_request("create", "selves"))
    assert is_in_scope(
        scope, RequestInfo("create", "", MANAGEMENT, "authentication.k8s.io", "v1", "selfsubjectreviews")
    )


@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_empty_scope_does_not_allow_discovery(subresource: str) -> None:
    for path in ("/", "/api", "/apis", f"/apis/{GROUP}", "/openapi/v2", "/openapi/v3", "/version"):
        assert not is_in_scope(Scope(), RequestInfo("get", path, MANAGEMENT))
    assert not is_in_scope(Scope(), management_request("get", "selves", subresource=subresource))


def test_the_own_user_and_teams_are_matched_by_groups_not_by_name() -> None:
    cli_scope = Scope(allow_cli=True)
    machine = User("ada", AUTHENTICATED_GROUPS, scope=cli_scope)
    assert is_in_scope(cli_scope, management_request("get", "users", name="ada")) and is_in_scope(
        cli_scope, management_request("get", "teams", name="core")
    )
    assert check_scope(machine, management_request("get", "users", name="ada")) is not None
    assert not is_in_scope(cli_scope, management_request("get", "users", name="*"))


def test_t4_a_cli_scope_reads_no_keys_and_no_secrets() -> None:
    cli_scope = Scope(allow_cli=True)
    for verb in ("get", "list", "watch", "create"):
        assert not is_in_scope(cli_scope, management_request(verb, "ownedaccesskeys", name="x"))
        assert not is_in_scope(cli_scope, core_request(verb, "secrets", "p-web"))
    assert not is_in_scope(cli_scope, management_request("get", "users", name="ada", subresource="accesskeys"))


# --- names ---


def test_a_project_does_not_match_by_prefix() -> None:
    assert is_in_scope(WEB, core_request("get", "configmaps", "p-web", "x"))
    for namespace in ("p-web2", "p-we", "p-", "web", "P-web", ""):
        assert not is_in_scope(WEB, core_request("get", "configmaps", namespace, "x"))


def test_a_wildcard_project_matches_namespaces_with_the_prefix_and_a_name() -> None:
    all_projects = Scope(projects=("*",))
    assert is_in_scope(all_projects, core_request("delete", "secrets", "p-anything", "x"))
    for namespace in ("p-", "default", "", "x-p-web"):
        assert not is_in_scope(all_projects, core_request("get", "secrets", namespace, "x"))


@pytest.mark.parametrize(
    "scope",
    [
        Scope(projects=("",)),
        Scope(clusters=("",)),
        Scope(spaces=(("", "dev"), ("web", ""), ("*", "*"))),
        Scope(allow_cli=True, spaces=(("", "dev"),), virtual_clusters=(("*", "*"),)),
    ],
)
def test_empty_and_meaningless_names_allow_nothing(scope: Scope) -> None:
    for target in (
        management_request("list", "projects"),
        management_request("list", "clusters"),
        management_request("get", "projects", name="*"),
        management_request("get", "spaceinstances", "p-", "dev"),
        management_request("get", "spaceinstances", "p-web", ""),
        management_request("get", "spaceinstances", "p-*", "x"),
    ):
        assert not is_in_scope(scope, target)


def test_t8_a_namespace_in_the_request_does_not_matter_for_cluster_scoped_kinds() -> None:
    assert not is_in_scope(WEB, management_request("get", "clusters", "p-web", "berlin"))
    assert not is_in_scope(WEB, management_request("delete", "projects", "p-web", "web"))
    scope = Scope(rules=(ScopeRule(namespaces=("p-web",)),))
    assert is_in_scope(scope, core_request("get", "secrets", "p-web", "x"))
    assert not is_in_scope(scope, management_request("get", "ownedaccesskeys", "p-web", "x"))


def test_the_namespace_of_a_project_is_read_only() -> None:
    assert is_in_scope(WEB, core_request("get", "namespaces", "p-web", "p-web"))
    assert is_in_scope(WEB, core_request("get", "namespaces", "p-web", "p-web", "status"))
    for verb in ("update", "patch", "delete", "create"):
        assert not is_in_scope(WEB, core_request(verb, "namespaces", "p-web", "p-web"))
    assert not is_in_scope(WEB, core_request("update", "namespaces", "p-web", "p-web", "finalize"))


# --- migrations between projects ---


def test_t5_a_key_for_one_project_cannot_migrate() -> None:
    migration = management_request("create", "projects", name="web", subresource="migratevirtualclusterinstance")
    assert not is_in_scope(WEB, migration)
    assert not is_in_scope(Scope(projects=("web", "web")), migration)
    assert is_in_scope(Scope(projects=("web", "lab")), migration)
    assert is_in_scope(Scope(projects=("*",)), migration)
    assert not is_in_scope(Scope(projects=("web", "lab")), replace(migration, name="other"))


def test_t5_the_source_of_a_migration_is_authorized_as_a_delete() -> None:
    source = management_request("delete", "virtualclusterinstances", "p-other", "ci")
    assert not is_in_scope(Scope(projects=("web", "lab")), source)


# --- filtered lists ---


@pytest.mark.parametrize(
    ("scope", "target", "expected"),
    [
        (
            scope_with_rule(verbs=("list", "watch"), resources=resources("configmaps"), object_names=("x",)),
            core_request("list", "configmaps"),
            True,
        ),
        (
            scope_with_rule(verbs=("list", "watch"), resources=resources("configmaps/status")),
            core_request("list", "configmaps"),
            False,
        ),
        (scope_with_rule(verbs=("create",)), core_request("list", "configmaps"), False),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("default",)), core_request("list", "configmaps"), True),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("",)), core_request("list", "configmaps"), False),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("",)), management_request("watch", "projects"), True),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("x",)), management_request("watch", "projects"), False),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("x",)), core_request("list", "namespaces"), True),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("",)), core_request("list", "namespaces"), True),
        (scope_with_rule(verbs=("list", "watch"), namespaces=("x",)), core_request("list", "configmaps", "y"), False),
        (scope_with_rule(verbs=("list", "watch"), paths=("*",)), core_request("list", "configmaps"), False),
        (scope_with_rule(verbs=("get",)), core_request("list", "configmaps"), False),
        (scope_with_rule(verbs=("get",), namespaces=("x",)), core_request("list", "namespaces"), False),
        (
            scope_with_rule(verbs=("get",), resources=resources("configmaps"), object_names=("x",)),
            core_request("list", "configmaps"),
            False,
        ),
        (scope_with_rule(verbs=("list",), namespaces=("default",)), core_request("watch", "configmaps"), False),
        (scope_with_rule(verbs=("watch",), namespaces=("default",)), core_request("list", "configmaps"), False),
        (WEB, core_request("list", "configmaps"), True),
        (WEB, core_request("deletecollection", "configmaps"), False),
        (WEB, replace(core_request("list", "configmaps"), name="x"), False),
        (WEB, core_request("list", "configmaps", "p-lab"), False),
        (WEB, management_request("list", "ownedaccesskeys"), False),
        (WEB, RequestInfo("list", "/x", "elsewhere", "", "v1", "configmaps"), False),
    ],
)
def test_a_list_is_filtered_if_the_scope_allows_some_of_its_objects(
    scope: Scope, target: RequestInfo, expected: bool
) -> None:
    assert is_filtered(scope, target) is expected


# --- messages ---


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        (core_request("get", "secrets", "p-lab", "x"), 'it needs an entry for project "lab"'),
        (management_request("get", "projects", name="lab"), 'it needs an entry for project "lab"'),
        (
            management_request("get", "spaceinstances", "p-lab", "dev"),
            'it needs an entry for project "lab" or its space "dev"',
        ),
        (core_request("get", "namespaces", "p-lab", "p-lab"), 'it needs an entry for project "lab"'),
        (core_request("get", "secrets", "default", "x"), "of the entries of a scope, only a rule could allow it"),
        (management_request("delete", "projects", name="web"), "of the entries of a scope, only a rule could allow it"),
        (management_request("get", "clusters", name="berlin"), 'it needs an entry for cluster "berlin"'),
        (management_request("create", "selfsubjectaccessreviews"), "it needs allowServiceCli"),
        (management_request("get", "users", name="ada"), "it needs allowServiceCli"),
        (RequestInfo("get", "/metrics", MANAGEMENT), "of the entries of a scope, only a rule could allow it"),
    ],
)
def test_a_denial_says_which_entry_is_needed(target: RequestInfo, advice: str) -> None:
    assert denial_reason(WEB, target) == f'outside the scope of access key "ci": {advice}'


def test_a_denial_names_the_key_if_it_has_a_name() -> None:
    assert denial_reason(WEB, RequestInfo("get", "/x")).startswith('outside the scope of access key "ci": ')
    assert denial_reason(WEB, RequestInfo("get", "/x"), key="").startswith("outside the scope of this credential: ")


def test_t17_a_denial_is_the_same_for_existing_and_missing_objects() -> None:
    """The authorizer has no access to objects."""
    one, other = (denial_reason(WEB, core_request("get", "secrets", "p-lab", name)) for name in ("exists", "missing"))
    assert one == other


def test_the_first_matching_entry_is_named() -> None:
    user = replace(ADA, scope=Scope(True, ("web", "*"), rules=(ScopeRule(paths=("/metrics",)),)))
    assert find_entry(user, core_request("get", "secrets", "p-web", "x")) == "projects[0]"
    assert find_entry(user, core_request("get", "secrets", "p-lab", "x")) == "projects[1]"
    assert find_entry(user, RequestInfo("get", "/metrics")) == "rules[0]"
    assert find_entry(user, management_request("get", "users", name="ada")) == "allowServiceCli"
    assert find_entry(user, management_request("create", "selves")) == "any scope"
    assert find_entry(user, core_request("get", "secrets", "default", "x")) == ""
    assert find_entry(ADA, core_request("get", "secrets", "default", "x")) == ""


def test_entries_that_allow_only_together_are_all_named() -> None:
    user = replace(ADA, scope=Scope(True, spaces=(("web", "dev"),)))
    assert find_entry(user, management_request("get", "projects", name="web")) == "spaces[0] and allowServiceCli"


# --- cached scopes ---


def test_equal_scopes_are_decided_alike() -> None:
    for project in ("web", "lab"):
        assert is_in_scope(Scope(projects=(project,)), core_request("get", "secrets", f"p-{project}", "x"))
        assert not is_in_scope(Scope(projects=(project,)), core_request("get", "secrets", "default", "x"))


def test_the_cache_of_compiled_scopes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "_compiled_cache", BoundedCache(4))
    scopes = [Scope(projects=(f"x{number}",)) for number in range(20)]
    for number, scope in enumerate(scopes):
        assert is_in_scope(scope, core_request("get", "secrets", f"p-x{number}", "x"))
        assert len(authorizer_module._compiled_cache) <= 4


def test_a_compiled_scope_is_dropped_with_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "_compiled_cache", {})
    kept = Scope(projects=("lasting",))
    for number in range(20):  # like a key that is updated again and again
        assert is_in_scope(kept, core_request("get", "secrets", "p-lasting", "x"))
        assert is_in_scope(Scope(projects=(f"x{number}",)), core_request("get", "secrets", f"p-x{number}", "x"))
    gc.collect()
    assert [scope for scope, _ in authorizer_module._compiled_cache] == [id(kept)]
