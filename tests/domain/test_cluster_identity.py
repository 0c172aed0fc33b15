"""Tests of `domain/cluster_identity.py`: the names and groups of users at clusters, and those that are rejected."""

from dataclasses import replace

import pytest

from fairlead.core.errors import Forbidden
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper, ImpersonationConfig, cluster_groups
from fairlead.settings.declarations import check_identity_prefix

ADA = User("ada", ("devs", "service:user:ada", "system:authenticated", "system:nodes"), uid="7")
ROOT = User("root", ("system:masters", "service:admins", "system:authenticated"))


@pytest.mark.parametrize("prefix", ["fairlead:", "corp/", "a-", "https://fairlead.example.com#", ""])
def test_the_name_and_all_groups_but_those_of_kubernetes_get_the_prefix(prefix: str) -> None:
    names = ClusterIdentityMapper(prefix)
    groups = f"{prefix}devs", f"{prefix}service:user:ada", "system:authenticated"
    assert names.map_user(ADA) == ImpersonationConfig(f"{prefix}ada", groups, "7")
    assert names.map_user(ROOT).groups == (f"{prefix}service:admins", "system:authenticated")
    assert names.admin_group == f"{prefix}service:admins"
    assert check_identity_prefix(prefix) is None


def test_administrators_get_one_group_and_no_system_groups() -> None:
    assert cluster_groups(("system:masters", "a", "service:admins", "system:nodes", "a")) == ("service:admins", "a")
    assert cluster_groups(("a\nb", "ä", "", " x", "host:system:serviceaccounts:a")) == ()


def test_groups_of_a_front_proxys_service_accounts_cannot_be_impersonated_at_clusters() -> None:
    with pytest.raises(Forbidden, match="service accounts are not sent to clusters"):
        ClusterIdentityMapper("fairlead:").check_impersonation(ADA, ["host:system:serviceaccounts"])


@pytest.mark.parametrize("prefix", ["fairlead:", ""])
def test_system_names_are_rejected_with_any_prefix(prefix: str) -> None:
    for name in ("system:admin", "system:serviceaccount:a:b", "host:system:serviceaccount:a:b", "", "ä", "a\nb"):
        with pytest.raises(Forbidden, match="is not sent to connected clusters"):
            ClusterIdentityMapper(prefix).map_user(User(name))


def test_an_impersonating_user_gets_the_prefix_too() -> None:
    acting = replace(ADA, impersonator=ROOT, extra=(("a", ("b",)),))
    extra = ClusterIdentityMapper("fairlead:").map_user(acting).extra
    assert extra == (("service.sh/impersonator", ("fairlead:root",)), ("a", ("b",)))


def test_extra_keys_that_differ_only_in_case_do_not_override_the_impersonator() -> None:
    forged = (
        ("Service.sh/impersonator", ("eve",)),
        ("service.sh/Impersonator", ("bob",)),
        ("A", ("1",)),
        ("a", ("2",)),
    )
    extra = ClusterIdentityMapper("fairlead:").map_user(replace(ADA, impersonator=ROOT, extra=forged)).extra
    assert extra == (("service.sh/impersonator", ("fairlead:root", "eve", "bob")), ("a", ("1", "2")))


@pytest.mark.parametrize(
    "prefix",
    [
        *("system:", "system:x:", "service:", "service:user:", "x", "corp", " a:", "a b:", "a:\n", "ä:", "a\tb:"),
        *(":", "-a:", "a" * 63 + ":", "a,b:", 'a":', "a\\:", "a%:", "a:b"),
    ],
)
def test_an_ambiguous_prefix_is_rejected(prefix: str) -> None:
    assert check_identity_prefix(prefix)


def test_no_prefix_turns_a_name_into_a_system_name() -> None:
    """Not even combined with the beginning of a name."""
    for length in range(len("system:") + 1):
        assert length == 0 or check_identity_prefix("system:"[:length])
