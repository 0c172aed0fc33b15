"""People for tests, in the groups that signing in would give them."""

from fairlead.core.user import EVERYBODY, User


def person(name: str, *teams: str) -> User:
    own = (f"service:user:{name}", "service:user:*")
    return User(name, (*(f"service:team:{team}" for team in teams), *EVERYBODY, *own))


ALICE, BOB, CAROL = person("alice", "red"), person("bob", "blue"), person("carol")
RED_KEY = User("service:team:red", ("service:team:red", *EVERYBODY))
"""A key of the team itself."""
MACHINE = User("alice", EVERYBODY)
"""A machine's key whose subject is called like a user: it is none."""
