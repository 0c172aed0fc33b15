"""What identities are called at clusters: the prefix, the groups that count, and what never gets there."""

from dataclasses import replace

import pytest

from fairlead.core.cluster_identity import ClusterIdentityMapper, ImpersonationConfig, check_prefix, cluster_groups
from fairlead.core.errors import Forbidden
from fairlead.core.user import User

ADA = User("ada", ("devs", "service:user:ada", "system:authenticated", "system:nodes"), uid="7")
ROOT = User("root", ("system:masters", "service:admins", "system:authenticated"))


@pytest.mark.parametrize("prefix", ["fairlead:", "corp/", "a-", "https://fairlead.example.com#", ""])
def test_the_prefix_is_in_front_of_the_name_and_of_every_group_but_kubernetes_own(prefix: str) -> None:
    names = ClusterIdentityMapper(prefix)
    groups = f"{prefix}devs", f"{prefix}service:user:ada", "system:authenticated"
    assert names.map_user(ADA) == ImpersonationConfig(f"{prefix}ada", groups, "7")
    assert names.map_user(ROOT).groups == (f"{prefix}service:admins", "system:authenticated")
    assert names.admin_group == f"{prefix}service:admins"
    assert check_prefix(prefix) is None


def test_administrators_are_one_group_and_kubernetes_own_groups_are_left_out() -> None:
    assert cluster_groups(("system:masters", "a", "service:admins", "system:nodes", "a")) == ("service:admins", "a")
    assert cluster_groups(("a\nb", "ä", "", " x")) == ()


@pytest.mark.parametrize("prefix", ["fairlead:", ""])
def test_names_of_kubernetes_itself_are_refused_whatever_the_prefix(prefix: str) -> None:
    for name in ("system:admin", "system:serviceaccount:a:b", "", "ä", "a\nb"):
        with pytest.raises(Forbidden, match="is not sent to connected clusters"):
            ClusterIdentityMapper(prefix).map_user(User(name))


def test_who_impersonates_is_called_as_everybody_else() -> None:
    acting = replace(ADA, impersonator=ROOT, extra=(("a", ("b",)),))
    found = ClusterIdentityMapper("fairlead:").map_user(acting).extra
    assert found == (("service.sh/impersonator", ("fairlead:root",)), ("a", ("b",)))


def test_no_other_spelling_of_its_key_comes_before_who_impersonates() -> None:
    forged = (
        ("Service.sh/impersonator", ("eve",)),
        ("service.sh/Impersonator", ("bob",)),
        ("A", ("1",)),
        ("a", ("2",)),
    )
    found = ClusterIdentityMapper("fairlead:").map_user(replace(ADA, impersonator=ROOT, extra=forged)).extra
    assert found == (("service.sh/impersonator", ("fairlead:root", "eve", "bob")), ("a", ("1", "2")))


@pytest.mark.parametrize(
    "prefix",
    [
        *("system:", "system:x:", "service:", "service:user:", "x", "corp", " a:", "a b:", "a:\n", "ä:", "a\tb:"),
        *(":", "-a:", "a" * 63 + ":", "a,b:", 'a":', "a\\:", "a%:", "a:b"),
    ],
)
def test_a_prefix_that_could_be_taken_for_something_else_is_refused(prefix: str) -> None:
    assert check_prefix(prefix)


def test_no_prefix_makes_a_name_one_of_kubernetes_own() -> None:
    """Also not together with the beginning of a name."""
    for length in range(len("system:") + 1):
        assert length == 0 or check_prefix("system:"[:length])
