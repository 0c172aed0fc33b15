"""Whether names of users and teams in an object mean somebody. `*` means every user, or the members of every team."""

from collections.abc import Collection

from fairlead.core.user import TEAM_GROUP, USER_GROUP, User

ANY = "*"


def is_user(user: User, names: Collection[str]) -> bool:
    """Users only: keys of teams and of machines have names, too, that might be the same."""
    groups = user.groups
    return any(f"{USER_GROUP}{name}" in groups for name in names)


def in_team(user: User, names: Collection[str]) -> bool:
    """Members of a team, and the team's own keys."""
    if ANY in names:
        return any(group.startswith(TEAM_GROUP) for group in user.groups)
    return any(f"{TEAM_GROUP}{name}" in user.groups for name in names)


def owns(user: User, owner_user: str | None, owner_team: str | None) -> bool:
    """An owner is one user or one team; `*` is nobody here."""
    if owner_user and owner_user != ANY and is_user(user, (owner_user,)):
        return True
    return bool(owner_team) and owner_team != ANY and in_team(user, (owner_team or "",))
