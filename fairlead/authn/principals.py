"""Users, teams and service accounts as identities: who they are, and which groups they are in by that.

`authn/access_keys.py` asks for the owners of keys; impersonation and reviews ask for users by name. Users and teams are
objects like all others and are followed in the view, so that a change takes effect with the next request. So are
service accounts.
"""

from collections.abc import Mapping

from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, EVERYBODY, SERVICE_ACCOUNTS, TEAM_GROUP, USER_GROUP, User
from fairlead.kinds.core.service_account import account_of
from fairlead.registry.codec import decode
from fairlead.registry.informer import Following
from fairlead.storage.view.view import View

USERS, TEAMS = "users", "teams"
EVERY_USER = f"{USER_GROUP}*"


def own_groups(name: str) -> tuple[str, ...]:
    """The groups that every user is in by being one."""
    return (*EVERYBODY, f"{USER_GROUP}{name}", EVERY_USER)


class People:
    """Everybody who can sign in. Whoever is disabled, or about to be deleted, is not there."""

    def __init__(self, users: Following, teams: Following, accounts: Following | None = None) -> None:
        """`accounts` are the service accounts, for those who ask about them."""
        self._users = users
        self._teams = teams
        self._accounts = accounts
        self._teams_generation = -1
        self._by_user: Mapping[str, list[str]] = {}
        self._by_sso_group: Mapping[str, list[str]] = {}

    def generation(self) -> tuple[int, int, int]:
        """Takes in what has happened; another value whenever somebody may have become somebody else."""
        accounts = 0 if self._accounts is None else self._accounts.refresh()
        generation = self._users.refresh(), self._teams.refresh(), accounts
        if generation[1] != self._teams_generation:
            self._by_user = self._members("spec.users")
            self._by_sso_group = self._members("spec.groups")
            self._teams_generation = generation[1]
        return generation

    def user_named(self, name: str) -> User | None:
        """The user of that name with all of its groups, as it would be with a key that adds nothing."""
        self.generation()
        found = self.living("User", name)
        return None if found is None else self.as_user(found)

    def living(self, kind: str, name: str) -> Object | None:
        """The user or team of that name, as of the last look, if it is in force."""
        following = self._users if kind == "User" else self._teams
        found = following.objects.get(("", name))
        return found if found is not None and _in_force(found) else None

    def service_account(self, subject: str, uid: str) -> User | None:
        """The service account with that user name and uid, as of the last look, if it is in force.

        It is in no group but those of service accounts and of everybody who has signed in to a Kubernetes API: what it
        may do comes from roles alone.
        """
        namespace, name = account_of(subject)
        found = self._accounts.objects.get((namespace, name)) if self._accounts is not None else None
        if found is None or not _in_force(found) or not uid or metadata(found).get("uid") != uid:
            return None
        return User(subject, (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", AUTHENTICATED), uid)

    def as_user(self, user: Object) -> User:
        name = metadata(user)["name"]
        own = dig(user, "spec.groups") or ()
        teams = (f"{TEAM_GROUP}{team}" for team in self.teams_of(user))
        groups = dict.fromkeys((*own, *teams, *own_groups(name)))
        return User(name, tuple(groups), metadata(user).get("uid", ""))

    def as_team(self, team: Object) -> User:
        group = f"{TEAM_GROUP}{metadata(team)['name']}"
        return User(group, (group, *EVERYBODY), metadata(team).get("uid", ""))

    def teams_of(self, user: Object) -> list[str]:
        """The teams that a user is in: by its name, or by a group that an identity provider has it in."""
        found = dict.fromkeys(self._by_user.get(metadata(user)["name"], ()))
        for group in dig(user, "spec.ssoGroups") or ():
            found.update(dict.fromkeys(self._by_sso_group.get(group, ())))
        return sorted(found)

    def memberships(self) -> dict[str, list[str]]:
        """The teams of every user there is."""
        self.generation()
        return {name: self.teams_of(user) for (_, name), user in self._users.objects.items()}

    def all_users(self) -> list[tuple[Object, User]]:
        """Every user that is in force, in the order of their names."""
        self.generation()
        found = (user for _, user in sorted(self._users.objects.items()) if _in_force(user))
        return [(user, self.as_user(user)) for user in found]

    def all_teams(self) -> list[Object]:
        """Every team that is in force, in the order of their names."""
        self.generation()
        return [team for _, team in sorted(self._teams.objects.items()) if _in_force(team)]

    def _members(self, path: str) -> dict[str, list[str]]:
        """The teams by what a field of theirs lists."""
        found: dict[str, list[str]] = {}
        for (_, name), team in self._teams.objects.items():
            for each in dig(team, path) or () if _in_force(team) else ():
                found.setdefault(each, []).append(name)
        return found


def _in_force(obj: Object) -> bool:
    return not dig(obj, "spec.disabled") and "deletionTimestamp" not in metadata(obj)


# DOC-MERGED authz/admin_names
# Which users are in a built-in admin group, by name: what makes one of them, or lets in as one, is for their like.
#
# Impersonation and the rule about passwords ask here. Users who are disabled count, too: they may be enabled again.


USERS_PLURAL = "users"


class AdminNames:
    """Whether the user of a name is in a built-in admin group; looked up as it is now."""

    def __init__(self, api_group: str, view: View) -> None:
        self._group = api_group
        self._view = view

    def __call__(self, name: str) -> bool:
        entry = self._view.get((self._group, USERS_PLURAL, "", name))
        return entry is not None and not ADMIN_GROUPS.isdisjoint(dig(decode(entry), "spec.groups") or ())
