"""Scopes, case by case where a table could not say it: names, people, migrations, lists, words.

What every route says to every shape of scope is in `test_matrix.py`.
"""

import gc
from dataclasses import replace

import pytest

from fairlead.authz.scope import authorizer as module
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeRole, ScopeRule
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from tests.authz.scope.decisions import ADA, WEB, core, entry, inside, ours, refusal, resources, rule, touched, within
from tests.authz.scope.strategies import GROUP

# --- who one is ---


@pytest.mark.parametrize("scope", [Scope(), Scope(roles=(ScopeRole("agent"),)), WEB])
def test_asking_who_one_is_is_always_inside(scope: Scope) -> None:
    assert inside(scope, ours("create", "selves"))
    assert inside(scope, RequestInfo("create", "", MANAGEMENT, "authentication.k8s.io", "v1", "selfsubjectreviews"))


@pytest.mark.parametrize("sub", ["", "status"])
def test_with_an_empty_scope_even_discovery_is_outside(sub: str) -> None:
    for path in ("/", "/api", "/apis", f"/apis/{GROUP}", "/openapi/v2", "/openapi/v3", "/version"):
        assert not inside(Scope(), RequestInfo("get", path, MANAGEMENT))
    assert not inside(Scope(), ours("get", "selves", sub=sub))


def test_one_s_own_user_and_teams_are_found_by_groups_and_not_by_names() -> None:
    cli = Scope(allow_cli=True)
    machine = User("ada", AUTHENTICATED_GROUPS, scope=cli)
    assert inside(cli, ours("get", "users", name="ada")) and inside(cli, ours("get", "teams", name="core"))
    assert within(machine, ours("get", "users", name="ada")) is not None
    assert not inside(cli, ours("get", "users", name="*"))


def test_t4_the_command_line_tool_reads_no_keys_and_no_secrets() -> None:
    cli = Scope(allow_cli=True)
    for verb in ("get", "list", "watch", "create"):
        assert not inside(cli, ours(verb, "ownedaccesskeys", name="x"))
        assert not inside(cli, core(verb, "secrets", "p-web"))
    assert not inside(cli, ours("get", "users", name="ada", sub="accesskeys"))


# --- names ---


def test_a_project_whose_name_begins_like_another_is_another() -> None:
    assert inside(WEB, core("get", "configmaps", "p-web", "x"))
    for namespace in ("p-web2", "p-we", "p-", "web", "P-web", ""):
        assert not inside(WEB, core("get", "configmaps", namespace, "x"))


def test_all_projects_are_all_namespaces_with_the_prefix_and_a_name() -> None:
    everything = Scope(projects=("*",))
    assert inside(everything, core("delete", "secrets", "p-anything", "x"))
    for namespace in ("p-", "default", "", "x-p-web"):
        assert not inside(everything, core("get", "secrets", namespace, "x"))


@pytest.mark.parametrize(
    "scope",
    [
        Scope(projects=("",)),
        Scope(clusters=("",)),
        Scope(spaces=(("", "dev"), ("web", ""), ("*", "*"))),
        Scope(allow_cli=True, spaces=(("", "dev"),), virtual_clusters=(("*", "*"),)),
    ],
)
def test_names_that_are_missing_or_mean_nothing_allow_nothing(scope: Scope) -> None:
    for target in (
        ours("list", "projects"),
        ours("list", "clusters"),
        ours("get", "projects", name="*"),
        ours("get", "spaceinstances", "p-", "dev"),
        ours("get", "spaceinstances", "p-web", ""),
        ours("get", "spaceinstances", "p-*", "x"),
    ):
        assert not inside(scope, target)


def test_t8_a_kind_outside_of_namespaces_is_not_decided_by_a_namespace() -> None:
    assert not inside(WEB, ours("get", "clusters", "p-web", "berlin"))
    assert not inside(WEB, ours("delete", "projects", "p-web", "web"))
    rule = Scope(rules=(ScopeRule(namespaces=("p-web",)),))
    assert inside(rule, core("get", "secrets", "p-web", "x"))
    assert not inside(rule, ours("get", "ownedaccesskeys", "p-web", "x"))


def test_a_project_s_namespace_is_read_and_nothing_else() -> None:
    assert inside(WEB, core("get", "namespaces", "p-web", "p-web"))
    assert inside(WEB, core("get", "namespaces", "p-web", "p-web", "status"))
    for verb in ("update", "patch", "delete", "create"):
        assert not inside(WEB, core(verb, "namespaces", "p-web", "p-web"))
    assert not inside(WEB, core("update", "namespaces", "p-web", "p-web", "finalize"))


# --- moving between projects ---


def test_t5_a_key_for_one_project_migrates_nothing() -> None:
    into = ours("create", "projects", name="web", sub="migratevirtualclusterinstance")
    assert not inside(WEB, into)
    assert not inside(Scope(projects=("web", "web")), into)
    assert inside(Scope(projects=("web", "lab")), into)
    assert inside(Scope(projects=("*",)), into)
    assert not inside(Scope(projects=("web", "lab")), replace(into, name="other"))


def test_t5_the_source_of_a_migration_is_asked_about_as_any_deletion() -> None:
    source = ours("delete", "virtualclusterinstances", "p-other", "ci")
    assert not inside(Scope(projects=("web", "lab")), source)


# --- lists that are cut ---


@pytest.mark.parametrize(
    ("scope", "target", "expected"),
    [
        (
            rule(verbs=("list", "watch"), resources=resources("configmaps"), object_names=("x",)),
            core("list", "configmaps"),
            True,
        ),
        (rule(verbs=("list", "watch"), resources=resources("configmaps/status")), core("list", "configmaps"), False),
        (rule(verbs=("create",)), core("list", "configmaps"), False),
        (rule(verbs=("list", "watch"), namespaces=("default",)), core("list", "configmaps"), True),
        (rule(verbs=("list", "watch"), namespaces=("",)), core("list", "configmaps"), False),
        (rule(verbs=("list", "watch"), namespaces=("",)), ours("watch", "projects"), True),
        (rule(verbs=("list", "watch"), namespaces=("x",)), ours("watch", "projects"), False),
        (rule(verbs=("list", "watch"), namespaces=("x",)), core("list", "namespaces"), True),
        (rule(verbs=("list", "watch"), namespaces=("",)), core("list", "namespaces"), True),
        (rule(verbs=("list", "watch"), namespaces=("x",)), core("list", "configmaps", "y"), False),
        (rule(verbs=("list", "watch"), paths=("*",)), core("list", "configmaps"), False),
        (rule(verbs=("get",)), core("list", "configmaps"), False),
        (rule(verbs=("get",), namespaces=("x",)), core("list", "namespaces"), False),
        (
            rule(verbs=("get",), resources=resources("configmaps"), object_names=("x",)),
            core("list", "configmaps"),
            False,
        ),
        (rule(verbs=("list",), namespaces=("default",)), core("watch", "configmaps"), False),
        (rule(verbs=("watch",), namespaces=("default",)), core("list", "configmaps"), False),
        (WEB, core("list", "configmaps"), True),
        (WEB, core("deletecollection", "configmaps"), False),
        (WEB, replace(core("list", "configmaps"), name="x"), False),
        (WEB, core("list", "configmaps", "p-lab"), False),
        (WEB, ours("list", "ownedaccesskeys"), False),
        (WEB, RequestInfo("list", "/x", "elsewhere", "", "v1", "configmaps"), False),
    ],
)
def test_a_list_is_cut_where_something_of_it_could_be_listed(scope: Scope, target: RequestInfo, expected: bool) -> None:
    assert touched(scope, target) is expected


# --- in words ---


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (core("get", "secrets", "p-lab", "x"), 'it needs an entry for project "lab"'),
        (ours("get", "projects", name="lab"), 'it needs an entry for project "lab"'),
        (ours("get", "spaceinstances", "p-lab", "dev"), 'it needs an entry for project "lab" or its space "dev"'),
        (core("get", "namespaces", "p-lab", "p-lab"), 'it needs an entry for project "lab"'),
        (core("get", "secrets", "default", "x"), "of the entries of a scope, only a rule could allow it"),
        (ours("delete", "projects", name="web"), "of the entries of a scope, only a rule could allow it"),
        (ours("get", "clusters", name="berlin"), 'it needs an entry for cluster "berlin"'),
        (ours("create", "selfsubjectaccessreviews"), "it needs allowServiceCli"),
        (ours("get", "users", name="ada"), "it needs allowServiceCli"),
        (RequestInfo("get", "/metrics", MANAGEMENT), "of the entries of a scope, only a rule could allow it"),
    ],
)
def test_a_refusal_says_what_it_would_have_taken(target: RequestInfo, words: str) -> None:
    assert refusal(WEB, target) == f'outside the scope of access key "ci": {words}'


def test_a_refusal_names_the_key_if_it_has_a_name() -> None:
    assert refusal(WEB, RequestInfo("get", "/x")).startswith('outside the scope of access key "ci": ')
    assert refusal(WEB, RequestInfo("get", "/x"), key="").startswith("outside the scope of this credential: ")


def test_t17_a_refusal_is_the_same_for_what_exists_and_what_does_not() -> None:
    """Nothing is looked up: there is nothing here that could know."""
    one, other = (refusal(WEB, core("get", "secrets", "p-lab", name)) for name in ("exists", "missing"))
    assert one == other


def test_the_first_entry_that_allows_is_named() -> None:
    user = replace(ADA, scope=Scope(True, ("web", "*"), rules=(ScopeRule(paths=("/metrics",)),)))
    assert entry(user, core("get", "secrets", "p-web", "x")) == "projects[0]"
    assert entry(user, core("get", "secrets", "p-lab", "x")) == "projects[1]"
    assert entry(user, RequestInfo("get", "/metrics")) == "rules[0]"
    assert entry(user, ours("get", "users", name="ada")) == "allowServiceCli"
    assert entry(user, ours("create", "selves")) == "any scope"
    assert entry(user, core("get", "secrets", "default", "x")) == ""
    assert entry(ADA, core("get", "secrets", "default", "x")) == ""


def test_entries_that_only_allow_together_are_all_named() -> None:
    user = replace(ADA, scope=Scope(True, spaces=(("web", "dev"),)))
    assert entry(user, ours("get", "projects", name="web")) == "spaces[0] and allowServiceCli"


# --- scopes that are kept ---


def test_equal_scopes_that_are_not_the_same_are_decided_alike() -> None:
    for project in ("web", "lab"):
        assert inside(Scope(projects=(project,)), core("get", "secrets", f"p-{project}", "x"))
        assert not inside(Scope(projects=(project,)), core("get", "secrets", "default", "x"))


def test_kept_scopes_stay_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_compiled_cache", BoundedCache(4))
    scopes = [Scope(projects=(f"x{number}",)) for number in range(20)]
    for number, scope in enumerate(scopes):
        assert inside(scope, core("get", "secrets", f"p-x{number}", "x"))
        assert len(module._compiled_cache) <= 4


def test_what_is_kept_of_a_scope_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_compiled_cache", {})
    lasting = Scope(projects=("lasting",))
    for number in range(20):  # somebody who writes a key again and again
        assert inside(lasting, core("get", "secrets", "p-lasting", "x"))
        assert inside(Scope(projects=(f"x{number}",)), core("get", "secrets", f"p-x{number}", "x"))
    gc.collect()
    assert [scope for scope, _ in module._compiled_cache] == [id(lasting)]
