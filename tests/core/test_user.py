import pytest

from fairlead.core.scope import Scope
from fairlead.core.user import ADMIN_GROUPS, CONTROLLER_USER, User


@pytest.mark.parametrize("group", sorted(ADMIN_GROUPS))
def test_an_administrator_has_all_permissions_unless_the_key_has_a_scope(group: str) -> None:
    assert User("ada", (group,)).is_unscoped_admin
    scoped = User("ada", (group,), scope=Scope(projects=("*",)))
    assert scoped.is_admin and not scoped.is_unscoped_admin


def test_the_server_itself_has_all_permissions_and_other_users_do_not() -> None:
    assert CONTROLLER_USER.is_unscoped_admin
    assert not User("eve", ("service:admin", "system:authenticated")).is_unscoped_admin


def test_service_accounts_of_a_namespace_share_one_name_in_flow_control() -> None:
    for prefix in ("system:serviceaccount:", "host:system:serviceaccount:"):
        assert User(f"{prefix}a:ci").flow_distinguisher == f"{prefix}a"
