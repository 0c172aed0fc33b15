"""Whether names of users and teams in an object mean somebody. `*` means every user, or the members of every team."""

from collections.abc import Iterable

from fairlead.core.user import TEAM_GROUP, USER_GROUP, User

ANY = "*"
KEPT = 4096
"""Identities whose names are kept ready. More than this many in use at a time only cost time."""

Own = tuple[frozenset[str], frozenset[str]]
"""The names that mean somebody: of users, and of teams."""

_kept: dict[int, tuple[tuple[str, ...], Own]] = {}
"""By the identity of the groups, and with the groups: while they are in here, nothing else can have their identity."""


def own_names(user: User) -> Own:
    """The names of users and teams that mean this user: objects name thousands of people, and nobody has more than a
    few names."""
    kept = _kept.get(id(user.groups))
    if kept is not None:
        return kept[1]
    if len(_kept) >= KEPT:
        _kept.clear()
    users = frozenset(each.removeprefix(USER_GROUP) for each in user.groups if each.startswith(USER_GROUP))
    teams = frozenset(each.removeprefix(TEAM_GROUP) for each in user.groups if each.startswith(TEAM_GROUP))
    own = users, teams | {ANY} if teams else teams
    _kept[id(user.groups)] = user.groups, own
    return own


def is_user(user: User, names: Iterable[str]) -> bool:
    """Users only: keys of teams and of machines have names, too, that might be the same."""
    return not own_names(user)[0].isdisjoint(names)


def in_team(user: User, names: Iterable[str]) -> bool:
    """Members of a team, and the team's own keys."""
    return not own_names(user)[1].isdisjoint(names)


def owns(user: User, owner_user: str | None, owner_team: str | None) -> bool:
    """An owner is one user or one team; `*` is nobody here."""
    users, teams = own_names(user)
    if owner_user and owner_user != ANY and owner_user in users:
        return True
    return bool(owner_team) and owner_team != ANY and owner_team in teams
