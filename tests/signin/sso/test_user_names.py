"""signin/sso/users.py: names of new users, and names that look alike."""

import re

import pytest

from fairlead.signin.sso.users import candidate_names, skeleton
from tests.harness.sign_on import identity

VALID = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def test_a_plain_name_is_tried_first_and_then_with_a_hash() -> None:
    first, *others = candidate_names(identity(username="alice"))
    assert first == "alice"
    assert all(re.fullmatch(r"alice-[0-9a-f]+", name) for name in others)


def test_the_local_part_of_an_address_is_a_name() -> None:
    assert candidate_names(identity(username="alice@example.com"))[0] == "alice"
    assert candidate_names(identity(username="", email="bob@example.com"))[0] == "bob"


@pytest.mark.parametrize(
    "username",
    [
        "\u0430lice",
        "al\u0131ce",
        "Alice",
        "al ice",
        "al/ice",
        "system:admin",
        "..",
        "",
        "ALICE",
        "x" * 300,
        "alice-",
        "я",
    ],
)
def test_a_name_that_has_to_be_changed_gets_a_hash(username: str) -> None:
    names = candidate_names(identity(username=username))
    assert all(VALID.fullmatch(name) and re.search(r"-[0-9a-f]{8,}$", name) for name in names), names
    assert all(len(name) <= 100 for name in names)


def test_two_identities_get_different_names() -> None:
    one, two = identity("1", username="Ada"), identity("2", username="Ada")
    assert set(candidate_names(one)).isdisjoint(candidate_names(two))


@pytest.mark.parametrize(
    "name", ["\u0430dmin", "adm\u0131n", "ad\u200bmin", "ADMIN", "\uff41dmin", "adm1n", "a\u0301dmin", "admln"]
)
def test_names_that_look_alike_have_the_same_skeleton(name: str) -> None:
    assert skeleton(name) == skeleton("admin")


def test_other_names_have_another_skeleton() -> None:
    assert len({skeleton(name) for name in ("admin", "alice", "bob", "adrian", "a", "")}) == 6
