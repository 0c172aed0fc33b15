"""Users, teams and service accounts as principals, with the groups they are in.

`authn/access_keys.py` resolves the owners of keys here; impersonation and access reviews look users up by name. The
objects are read through informers, so a change takes effect with the next request. Users of an identity provider are
active only while the Config allows them, and the rules there give them teams and groups (`authn/sign_on_policy.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import (
    ADMIN_GROUPS,
    AUTHENTICATED,
    AUTHENTICATED_GROUPS,
    SERVICE_ACCOUNTS_GROUP,
    TEAM_GROUP_PREFIX,
    USER_GROUP_PREFIX,
    User,
)
from fairlead.kinds.core.service_account import parse_account_username
from fairlead.registry.codec import decode
from fairlead.registry.informer import Derived, Informer
from fairlead.storage.view.view import View

USERS, TEAMS = "users", "teams"
ALL_USERS_GROUP = f"{USER_GROUP_PREFIX}*"


def implicit_groups(name: str) -> tuple[str, ...]:
    """The groups that every user is in implicitly."""
    return (*AUTHENTICATED_GROUPS, f"{USER_GROUP_PREFIX}{name}", ALL_USERS_GROUP)


@dataclass(frozen=True, slots=True)
class _TeamIndex:
    """The names of the active teams."""

    by_user: Mapping[str, list[str]]
    by_sso_group: Mapping[str, list[str]]
    names: frozenset[str]


class PrincipalDirectory:
    """Looks up active principals. Disabled ones, and those that are being deleted, are not found."""

    def __init__(
        self,
        users: Informer,
        teams: Informer,
        accounts: Informer | None = None,
        sign_on: SignOnPolicy | None = None,
    ) -> None:
        """`accounts` are the service accounts; without them, none is found. Without `sign_on`, no user of an identity
        provider is."""
        self._users = users
        self._teams = teams
        self._accounts = accounts
        self._sign_on = sign_on
        self._team_index = Derived(teams.view, (teams.refresh,), self._index_teams)

    def generation(self) -> tuple[int, int, int, int]:
        """Refreshes the informers. The value changes whenever the groups of a principal may have changed."""
        accounts = 0 if self._accounts is None else self._accounts.refresh()
        sign_on = 0 if self._sign_on is None else self._sign_on.generation()
        return self._users.refresh(), self._teams.refresh(), accounts, sign_on

    def find_user(self, name: str) -> User | None:
        """The user with all of its groups, without those that a key may add."""
        self.generation()
        found = self.find_active("User", name)
        return None if found is None else self.build_user(found)

    def has_user(self, name: str) -> bool:
        """Whether there is a user of that name, active or not."""
        self.generation()
        return ("", name) in self._users.objects

    def find_active(self, kind: str, name: str) -> Object | None:
        """The active user or team of that name, as of the last refresh."""
        following = self._users if kind == "User" else self._teams
        found = following.objects.get(("", name))
        return found if found is not None and self._is_active(found) else None

    def is_session_current(self, key: Object, now: datetime) -> bool:
        """Whether a login by single sign-on is still backed by its provider."""
        return self._sign_on is not None and self._sign_on.is_session_current(key, now)

    def service_account(self, subject: str, uid: str) -> User | None:
        """The active service account with that user name and uid, as of the last refresh.

        It is only in the groups that Kubernetes gives service accounts and authenticated users. Its permissions come
        from RBAC alone.
        """
        namespace, name = parse_account_username(subject)
        found = self._accounts.objects.get((namespace, name)) if self._accounts is not None else None
        if found is None or not _is_active(found) or not uid or metadata(found).get("uid") != uid:
            return None
        return User(subject, (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED), uid)

    def build_user(self, user: Object) -> User:
        name = metadata(user)["name"]
        own = get_path(user, "spec.groups") or ()
        teams = (f"{TEAM_GROUP_PREFIX}{team}" for team in self.teams_of(user))
        groups = dict.fromkeys((*own, *self._mapped_groups(user), *teams, *implicit_groups(name)))
        return User(name, tuple(groups), metadata(user).get("uid", ""))

    def build_team(self, team: Object) -> User:
        group = f"{TEAM_GROUP_PREFIX}{metadata(team)['name']}"
        return User(group, (group, *AUTHENTICATED_GROUPS), metadata(team).get("uid", ""))

    def teams_of(self, user: Object) -> list[str]:
        """The teams of a user, by name or by a group from the identity provider."""
        teams = self._team_index.get()
        found = dict.fromkeys(teams.by_user.get(metadata(user)["name"], ()))
        for group in get_path(user, "spec.ssoGroups") or ():
            found.update(dict.fromkeys(teams.by_sso_group.get(group, ())))
        verdict = self._sign_on.verdict(user) if self._sign_on is not None else None
        found.update(dict.fromkeys(team for team in verdict.teams if team in teams.names) if verdict else {})
        return sorted(found)

    def _mapped_groups(self, user: Object) -> tuple[str, ...]:
        """The groups that rules in the Config give."""
        verdict = self._sign_on.verdict(user) if self._sign_on is not None else None
        return verdict.groups if verdict is not None else ()

    def memberships(self) -> dict[str, list[str]]:
        """The teams of every user, also of inactive ones."""
        self.generation()
        return {name: self.teams_of(user) for (_, name), user in self._users.objects.items()}

    def list_users(self) -> list[tuple[Object, User]]:
        """All active users, sorted by name."""
        self.generation()
        found = (user for _, user in sorted(self._users.objects.items()) if self._is_active(user))
        return [(user, self.build_user(user)) for user in found]

    def list_teams(self) -> list[Object]:
        """All active teams, sorted by name."""
        self.generation()
        return [team for _, team in sorted(self._teams.objects.items()) if _is_active(team)]

    def _index_teams(self) -> _TeamIndex:
        names = frozenset(name for (_, name), team in self._teams.objects.items() if _is_active(team))
        return _TeamIndex(self._teams_by_field("spec.users"), self._teams_by_field("spec.groups"), names)

    def _is_active(self, obj: Object) -> bool:
        if not _is_active(obj):
            return False
        if not get_path(obj, "spec.issuer"):
            return True
        return self._sign_on is not None and self._sign_on.is_allowed(obj)

    def _teams_by_field(self, path: str) -> dict[str, list[str]]:
        """The names of the active teams, indexed by the items of a list field."""
        found: dict[str, list[str]] = {}
        for (_, name), team in self._teams.objects.items():
            for each in get_path(team, path) or () if _is_active(team) else ():
                found.setdefault(each, []).append(name)
        return found


def _is_active(obj: Object) -> bool:
    return not get_path(obj, "spec.disabled") and "deletionTimestamp" not in metadata(obj)


class AdminUserCheck:
    """Whether the user of a name is in a built-in admin group, as of now.

    Impersonation, profiles and the admission rules about users and their passwords use it: only administrators may act
    as an administrator, or change one. Users who are disabled, or whom the allow-lists of single sign-on refuse, count:
    they may be allowed again.
    """

    def __init__(self, api_group: str, view: View, sign_on: SignOnPolicy | None = None) -> None:
        self._group = api_group
        self._view = view
        self._sign_on = sign_on

    def __call__(self, name: str) -> bool:
        entry = self._view.get((self._group, USERS, "", name))
        if entry is None:
            return False
        user = decode(entry)
        verdict = self._sign_on.verdict(user) if self._sign_on is not None else None
        # The rules, and not the groups of the verdict, which are empty while the user is refused.
        mapped = (group for rule in (verdict.rules if verdict is not None else ()) for group in rule.groups)
        return not ADMIN_GROUPS.isdisjoint((*(get_path(user, "spec.groups") or ()), *mapped))
