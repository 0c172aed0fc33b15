"""Users with the groups that authentication gives them."""

from fairlead.core.user import AUTHENTICATED_GROUPS, User


def user_in_groups(name: str, *teams: str) -> User:
    own = (f"service:user:{name}", "service:user:*")
    return User(name, (*(f"service:team:{team}" for team in teams), *AUTHENTICATED_GROUPS, *own))


ALICE, BOB, CAROL = user_in_groups("alice", "red"), user_in_groups("bob", "blue"), user_in_groups("carol")
RED_KEY = User("service:team:red", ("service:team:red", *AUTHENTICATED_GROUPS))
"""A key of the team itself."""
MACHINE = User("alice", AUTHENTICATED_GROUPS)
"""A key of a machine with the name of a user, but without that user's groups."""
