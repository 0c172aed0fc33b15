"""server.auth.impersonation: the permissions it requires, the identity it yields, and how it is limited (T-19)."""

from collections.abc import Mapping, Sequence

import pytest

from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import BadRequest, Forbidden
from fairlead.core.scope import Scope
from fairlead.core.user import AUTHENTICATED, User
from fairlead.server.auth import impersonation
from fairlead.server.auth.impersonation import Impersonation, new_impersonation_cache
from tests.harness.calls import ADMIN, call

ALICE = User("alice", (AUTHENTICATED,), key="alice-key")
KNOWN_USERS = {
    "bob": User("bob", ("service:team:blue", AUTHENTICATED, "service:user:bob"), uid="7"),
    "root": User("root", ("service:admins", AUTHENTICATED)),
}


ADMINISTRATORS = {"root", "disabled-admin"}
"""Users in a built-in admin group. One of them is disabled, so that its groups are not found by its name."""


class FakePermissions:
    """What users other than administrators may impersonate, as (resource, subresource, namespace, name)."""

    def __init__(self, *permissions: tuple[str, str, str, str]) -> None:
        self.permissions = permissions

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        assert target.verb == "impersonate"
        requested = (target.resource, target.subresource, target.namespace, target.name)
        return Decision(user.is_admin or requested in self.permissions)


def impersonate(
    user: User, headers: Mapping[str, str | Sequence[str]], *permissions: tuple[str, str, str, str]
) -> User:
    return Impersonation(FakePermissions(*permissions), KNOWN_USERS.get, ADMINISTRATORS.__contains__)(
        call(headers=headers), user
    )


def test_without_impersonation_headers_the_user_is_unchanged() -> None:
    assert impersonate(ALICE, {"accept": "x"}) is ALICE


def test_an_unknown_user_gets_only_the_name_and_system_authenticated() -> None:
    user = impersonate(ADMIN, {"impersonate-user": "eve"})
    assert (user.name, user.groups, user.uid, user.impersonator) == ("eve", (AUTHENTICATED,), "", ADMIN)


def test_all_impersonation_headers_are_applied() -> None:
    user = impersonate(
        ADMIN,
        {
            "impersonate-user": "eve",
            "impersonate-group": ["g1", "g2", "g1", AUTHENTICATED],
            "impersonate-uid": "u",
            "impersonate-extra-scopes": ["a", "b"],
            "impersonate-extra-a%2fb": "c",
        },
    )
    assert user.groups == ("g1", "g2", AUTHENTICATED)
    assert (user.uid, user.extra) == ("u", (("a/b", ("c",)), ("scopes", ("a", "b"))))


def test_a_known_user_has_its_own_groups_unless_groups_are_requested() -> None:
    assert impersonate(ADMIN, {"impersonate-user": "bob"}).groups == KNOWN_USERS["bob"].groups
    assert impersonate(ADMIN, {"impersonate-user": "bob", "impersonate-group": "g"}).groups == ("g", AUTHENTICATED)


def test_the_joined_group_header_is_split_into_groups() -> None:
    assert impersonate(ADMIN, {"impersonate-user": "x", "impersonate-joined-group": "a, b"}).groups == (
        "a",
        "b",
        AUTHENTICATED,
    )


def test_a_service_account_has_the_service_account_groups() -> None:
    name = "system:serviceaccount:demo:sa"
    user = impersonate(ALICE, {"impersonate-user": name}, ("serviceaccounts", "", "demo", "sa"))
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:demo", AUTHENTICATED)


@pytest.mark.parametrize(
    ("headers", "resource"),
    [
        ({"impersonate-user": "eve"}, "users"),
        ({"impersonate-user": "bob", "impersonate-group": "g"}, "groups"),
        ({"impersonate-user": "bob", "impersonate-joined-group": "g"}, "groups"),
        ({"impersonate-user": "bob", "impersonate-uid": "u"}, "uids"),
        ({"impersonate-user": "bob", "impersonate-extra-scopes": "a"}, "userextras"),
        ({"impersonate-user": "system:serviceaccount:demo:sa"}, "serviceaccounts"),
    ],
)
def test_t19_each_header_needs_its_own_permission(headers: dict[str, str], resource: str) -> None:
    with pytest.raises(Forbidden, match=f'cannot impersonate resource "{resource}'):
        impersonate(ALICE, headers, ("users", "", "", "bob"))


def test_extra_keys_that_differ_only_in_case_are_one_key_with_one_permission() -> None:
    headers: dict[str, str | Sequence[str]] = {
        "impersonate-user": "bob",
        "impersonate-extra-%53cope%2fA": "forged",
        "impersonate-extra-scope%2fa": "real",
    }
    assert impersonate(ADMIN, headers).extra == (("scope/a", ("forged", "real")),)
    permissions = (
        ("users", "", "", "bob"),
        ("userextras", "Scope/A", "", "forged"),
        ("userextras", "scope/a", "", "real"),
    )
    with pytest.raises(Forbidden, match="userextras/scope/a"):
        impersonate(ALICE, headers, *permissions)


def test_t19_a_scoped_key_never_impersonates() -> None:
    scoped = User("root", ("system:masters",), key="k", scope=Scope(projects=("*",)))
    with pytest.raises(Forbidden, match="scope and cannot impersonate"):
        impersonate(scoped, {"impersonate-user": "bob"})


@pytest.mark.parametrize("group", ["system:masters", "service:admins"])
def test_t19_only_administrators_can_impersonate_an_admin_group(group: str) -> None:
    headers = {"impersonate-user": "bob", "impersonate-group": group}
    with pytest.raises(Forbidden, match="built-in admin group"):
        impersonate(ALICE, headers, ("users", "", "", "bob"), ("groups", "", "", group))
    assert impersonate(ADMIN, headers).is_admin


def test_t19_only_administrators_can_impersonate_an_administrator() -> None:
    with pytest.raises(Forbidden, match="built-in admin group"):
        impersonate(ALICE, {"impersonate-user": "root"}, ("users", "", "", "root"))


@pytest.mark.parametrize(
    ("name", "group"), [("root", "service:user:root"), ("root", "g"), ("eve", "service:user:root")]
)
def test_t19_requesting_other_groups_does_not_allow_impersonating_an_administrator(name: str, group: str) -> None:
    """An access key created under that name would have all groups of the administrator."""
    headers = {"impersonate-user": name, "impersonate-group": group}
    with pytest.raises(Forbidden, match='members of built-in admin groups: user "root"'):
        impersonate(ALICE, headers, ("users", "", "", name), ("groups", "", "", group))
    assert impersonate(ADMIN, headers).name == name


def test_t19_only_administrators_can_impersonate_a_disabled_administrator() -> None:
    with pytest.raises(Forbidden, match='members of built-in admin groups: user "disabled-admin"'):
        impersonate(ALICE, {"impersonate-user": "disabled-admin"}, ("users", "", "", "disabled-admin"))


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-x", "impersonate-x"])
def test_impersonation_headers_without_a_user_are_rejected(header: str) -> None:
    with pytest.raises(BadRequest, match="Impersonate-User"):
        impersonate(ADMIN, {header: "x"})


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-x", "impersonate-user"])
def test_t18_an_unreadable_impersonation_header_is_rejected(header: str) -> None:
    """If the requested groups were ignored, a known user would have all of its own."""
    with pytest.raises(BadRequest, match=f"{header} cannot be read"):
        impersonate(ADMIN, {"impersonate-user": "bob", header: ()})


def test_the_impersonated_user_has_neither_the_key_nor_the_scope_of_the_impersonator() -> None:
    user = impersonate(ALICE, {"impersonate-user": "bob"}, ("users", "", "", "bob"))
    assert (user.key, user.scope, user.impersonator) == ("", None, ALICE)


def test_an_allowed_impersonation_is_cached_until_permissions_change() -> None:
    decisions: list[RequestInfo] = []
    cache, allowed = new_impersonation_cache(), True

    def decide(user: User, target: RequestInfo) -> Decision:
        decisions.append(target)
        return Decision(allowed, "as the test says")

    impersonation_stage = Impersonation(decide, KNOWN_USERS.get, ADMINISTRATORS.__contains__, lambda: cache)
    as_jane, as_john = call(headers={"impersonate-user": "jane"}), call(headers={"impersonate-user": "john"})
    first = impersonation_stage(as_jane, ALICE)
    assert impersonation_stage(as_jane, ALICE) is first and len(decisions) == 1
    assert impersonation_stage(as_john, ALICE).name == "john" and len(decisions) == 2, (
        "other headers are authorized on their own"
    )
    other_key = User("alice", ALICE.groups, key="another-key")
    assert impersonation_stage(as_jane, other_key).impersonator is other_key and len(decisions) == 3, (
        "so is another key"
    )
    cache, allowed = new_impersonation_cache(), False
    for request in (as_jane, as_john):
        with pytest.raises(Forbidden):
            impersonation_stage(request, ALICE)
    assert len(decisions) == 5


def test_a_denial_is_not_cached() -> None:
    cache, allowed = new_impersonation_cache(), False
    impersonation_stage = Impersonation(
        lambda user, target: Decision(allowed), KNOWN_USERS.get, ADMINISTRATORS.__contains__, lambda: cache
    )
    as_jane = call(headers={"impersonate-user": "jane"})
    with pytest.raises(Forbidden):
        impersonation_stage(as_jane, ALICE)
    allowed = True
    assert impersonation_stage(as_jane, ALICE).name == "jane"


def test_the_impersonation_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impersonation, "IMPERSONATION_CACHE_SIZE", 3)
    cache = new_impersonation_cache()
    impersonation_stage = Impersonation(
        lambda user, target: Decision(True), KNOWN_USERS.get, ADMINISTRATORS.__contains__, lambda: cache
    )
    for number in range(10):
        impersonation_stage(call(headers={"impersonate-user": f"user-{number}"}), ALICE)
        impersonation_stage(
            call(headers={"impersonate-user": "x" * impersonation.MAX_CACHED_HEADERS_LENGTH + str(number)}), ALICE
        )
        assert len(cache) <= 3
    assert all(len(user.name) < 100 for _, user in cache.values())
