"""Acting as somebody else: what it takes, what it gives, and what nobody gets that way (T-19)."""

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
KNOWN = {
    "bob": User("bob", ("service:team:blue", AUTHENTICATED, "service:user:bob"), uid="7"),
    "root": User("root", ("service:admins", AUTHENTICATED)),
}


ADMINISTRATORS = {"root", "resting"}
"""Users in a built-in admin group. One of them is disabled, so that nobody finds its groups by its name."""


class Held:
    """What everybody but the administrators may impersonate, as (resource, subresource, namespace, name)."""

    def __init__(self, *rights: tuple[str, str, str, str]) -> None:
        self.rights = rights

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        assert target.verb == "impersonate"
        asked = (target.resource, target.subresource, target.namespace, target.name)
        return Decision(user.is_admin or asked in self.rights)


def acting(asker: User, headers: Mapping[str, str | Sequence[str]], *rights: tuple[str, str, str, str]) -> User:
    return Impersonation(Held(*rights), KNOWN.get, ADMINISTRATORS.__contains__)(call(headers=headers), asker)


def test_without_such_headers_everybody_is_themselves() -> None:
    assert acting(ALICE, {"accept": "x"}) is ALICE


def test_a_stranger_gets_the_name_and_nothing_else() -> None:
    user = acting(ADMIN, {"impersonate-user": "eve"})
    assert (user.name, user.groups, user.uid, user.impersonator) == ("eve", (AUTHENTICATED,), "", ADMIN)


def test_everything_that_was_asked_for_is_taken_over() -> None:
    user = acting(
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


def test_a_known_user_comes_with_its_groups_unless_others_are_named() -> None:
    assert acting(ADMIN, {"impersonate-user": "bob"}).groups == KNOWN["bob"].groups
    assert acting(ADMIN, {"impersonate-user": "bob", "impersonate-group": "g"}).groups == ("g", AUTHENTICATED)


def test_joined_groups_are_groups() -> None:
    assert acting(ADMIN, {"impersonate-user": "x", "impersonate-joined-group": "a, b"}).groups == (
        "a",
        "b",
        AUTHENTICATED,
    )


def test_a_service_account_is_in_the_groups_of_its_kind() -> None:
    name = "system:serviceaccount:demo:sa"
    user = acting(ALICE, {"impersonate-user": name}, ("serviceaccounts", "", "demo", "sa"))
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
def test_t19_each_part_needs_a_right_of_its_own(headers: dict[str, str], resource: str) -> None:
    with pytest.raises(Forbidden, match=f'cannot impersonate resource "{resource}'):
        acting(ALICE, headers, ("users", "", "", "bob"))


def test_extra_keys_that_differ_in_case_alone_are_one_key_with_one_right() -> None:
    headers: dict[str, str | Sequence[str]] = {
        "impersonate-user": "bob",
        "impersonate-extra-%53cope%2fA": "forged",
        "impersonate-extra-scope%2fa": "real",
    }
    assert acting(ADMIN, headers).extra == (("scope/a", ("forged", "real")),)
    rights = (("users", "", "", "bob"), ("userextras", "Scope/A", "", "forged"), ("userextras", "scope/a", "", "real"))
    with pytest.raises(Forbidden, match="userextras/scope/a"):
        acting(ALICE, headers, *rights)


def test_t19_a_scoped_key_never_impersonates() -> None:
    scoped = User("root", ("system:masters",), key="k", scope=Scope(projects=("*",)))
    with pytest.raises(Forbidden, match="scope and cannot impersonate"):
        acting(scoped, {"impersonate-user": "bob"})


@pytest.mark.parametrize("group", ["system:masters", "service:admins"])
def test_t19_nobody_gets_into_an_admin_group_who_is_not_in_one(group: str) -> None:
    headers = {"impersonate-user": "bob", "impersonate-group": group}
    with pytest.raises(Forbidden, match="built-in admin group"):
        acting(ALICE, headers, ("users", "", "", "bob"), ("groups", "", "", group))
    assert acting(ADMIN, headers).is_admin


def test_t19_nobody_becomes_an_administrator_by_name() -> None:
    with pytest.raises(Forbidden, match="built-in admin group"):
        acting(ALICE, {"impersonate-user": "root"}, ("users", "", "", "root"))


@pytest.mark.parametrize(
    ("name", "group"), [("root", "service:user:root"), ("root", "g"), ("eve", "service:user:root")]
)
def test_t19_nobody_becomes_an_administrator_by_naming_other_groups(name: str, group: str) -> None:
    """A key made under that name would have all the groups of the administrator."""
    headers = {"impersonate-user": name, "impersonate-group": group}
    with pytest.raises(Forbidden, match='members of built-in admin groups: user "root"'):
        acting(ALICE, headers, ("users", "", "", name), ("groups", "", "", group))
    assert acting(ADMIN, headers).name == name


def test_t19_nobody_becomes_an_administrator_who_is_disabled() -> None:
    with pytest.raises(Forbidden, match='members of built-in admin groups: user "resting"'):
        acting(ALICE, {"impersonate-user": "resting"}, ("users", "", "", "resting"))


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-x", "impersonate-x"])
def test_groups_without_a_user_are_nobodys(header: str) -> None:
    with pytest.raises(BadRequest, match="Impersonate-User"):
        acting(ADMIN, {header: "x"})


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-x", "impersonate-user"])
def test_t18_what_cannot_be_read_is_not_left_out(header: str) -> None:
    """Without the groups that were asked for, a known user would come with all of its own."""
    with pytest.raises(BadRequest, match=f"{header} cannot be read"):
        acting(ADMIN, {"impersonate-user": "bob", header: ()})


def test_rights_are_of_whom_one_acts_as_and_the_key_is_left_behind() -> None:
    user = acting(ALICE, {"impersonate-user": "bob"}, ("users", "", "", "bob"))
    assert (user.key, user.scope, user.impersonator) == ("", None, ALICE)


def test_what_was_allowed_is_kept_until_something_changes() -> None:
    asked: list[RequestInfo] = []
    cache, allowed = new_impersonation_cache(), True

    def decide(user: User, target: RequestInfo) -> Decision:
        asked.append(target)
        return Decision(allowed, "as the test says")

    acts = Impersonation(decide, KNOWN.get, ADMINISTRATORS.__contains__, lambda: cache)
    jane, john = call(headers={"impersonate-user": "jane"}), call(headers={"impersonate-user": "john"})
    first = acts(jane, ALICE)
    assert acts(jane, ALICE) is first and len(asked) == 1
    assert acts(john, ALICE).name == "john" and len(asked) == 2, "another header is another question"
    other = User("alice", ALICE.groups, key="another-key")
    assert acts(jane, other).impersonator is other and len(asked) == 3, "and so is another asker"
    cache, allowed = new_impersonation_cache(), False
    for again in (jane, john):
        with pytest.raises(Forbidden):
            acts(again, ALICE)
    assert len(asked) == 5


def test_a_refusal_is_not_kept() -> None:
    cache, allowed = new_impersonation_cache(), False
    acts = Impersonation(lambda user, target: Decision(allowed), KNOWN.get, ADMINISTRATORS.__contains__, lambda: cache)
    jane = call(headers={"impersonate-user": "jane"})
    with pytest.raises(Forbidden):
        acts(jane, ALICE)
    allowed = True
    assert acts(jane, ALICE).name == "jane"


def test_what_is_kept_of_impersonation_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impersonation, "IMPERSONATION_CACHE_SIZE", 3)
    cache = new_impersonation_cache()
    acts = Impersonation(lambda user, target: Decision(True), KNOWN.get, ADMINISTRATORS.__contains__, lambda: cache)
    for number in range(10):
        acts(call(headers={"impersonate-user": f"user-{number}"}), ALICE)
        acts(call(headers={"impersonate-user": "x" * impersonation.MAX_CACHED_HEADERS_LENGTH + str(number)}), ALICE)
        assert len(cache) <= 3
    assert all(len(user.name) < 100 for _, user in cache.values())
