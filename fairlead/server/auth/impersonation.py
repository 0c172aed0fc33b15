"""Acting as somebody else, by Kubernetes' rules.

`Impersonate-User`, `-Group`, `-Uid` and `-Extra-*` each need the verb `impersonate` on what they name. Beyond those
rules: keys with a scope never impersonate, and nobody gets into a built-in admin group, or becomes a user who is in
one, without being in one. The name of such a user is enough for that, whatever groups are asked for beside it: keys are
made for a name. `stages.py` asks here after it has found out who really asks, on the way through a gateway too.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from fairlead.authz import Decide
from fairlead.authz.authorizer import forbidden
from fairlead.core.call import MANAGEMENT, Call, Headers, Target
from fairlead.core.cluster_identity import Extra, merge_extra
from fairlead.core.errors import BadRequest, Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, SERVICE_ACCOUNT, USER_GROUP, User

PREFIX = "impersonate-"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
JOINED_GROUP = "impersonate-joined-group"
_AUTHENTICATION = "authentication.k8s.io"

UserNamed = Callable[[str], User | None]
"""The user of that name with all of its groups, if there is one."""
IsAdministrator = Callable[[str], bool]
"""Whether the user of that name is in a built-in admin group, also one who cannot sign in now."""
Generation = Callable[[], object]
"""Another value whenever anybody may have become somebody else, or may do something else."""
Asked = tuple[tuple[str, tuple[str, ...]], ...]
"""The headers that say whom to act as."""

KEPT, LONGEST_KEPT = 1_024, 2_048
"""How many answers are kept, and for how many characters of headers at most."""


def nothing_lasts() -> object:
    """The generation where nobody can say it: whatever was found out may have changed."""
    return object()


def asks_to_impersonate(headers: Headers) -> bool:
    return headers.any_begins(PREFIX)


class Impersonation:
    """Turns who asks into whom they act as, if they may."""

    def __init__(
        self,
        decide: Decide,
        user_named: UserNamed,
        is_administrator: IsAdministrator,
        generation: Generation = nothing_lasts,
    ) -> None:
        self._decide = decide
        self._user_named = user_named
        self._is_administrator = is_administrator
        self._generation = generation
        self._kept_in: object = None
        self._kept: dict[tuple[int, Asked], tuple[User, User]] = {}

    def __call__(self, call: Call, asker: User) -> User:
        """Whoever acts as others does so again and again, so what was allowed is kept until anything changes."""
        if not asks_to_impersonate(call.headers):
            return asker
        generation = self._generation()
        if generation != self._kept_in:
            self._kept.clear()
            self._kept_in = generation
        # By identity, and with the asker itself: while it is in here, nobody else can have its identity.
        place = id(asker), _asked(call.headers)
        kept = self._kept.get(place)
        if kept is not None:
            return kept[1]
        wanted = self._allowed(call, asker)
        if _length(place[1]) <= LONGEST_KEPT:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[place] = asker, wanted
        return wanted

    def _allowed(self, call: Call, asker: User) -> User:
        wanted = self._wanted(call.headers)
        if asker.scope is not None:
            raise Forbidden(f'an access key with a scope cannot impersonate: "{asker.key}" has one; use a key without')
        for target in _rights(wanted, call.headers):
            decision = self._decide(asker, target)
            if not decision.allowed:
                raise forbidden(asker, target, decision)
        if not asker.is_admin and (above := self._above(wanted)):
            raise Forbidden(f'User "{asker.name}" cannot act as a member of a built-in admin group: {", ".join(above)}')
        return replace(wanted, impersonator=asker)

    def _above(self, wanted: User) -> list[str]:
        """The built-in admin groups in this identity, and the administrators whom it would be taken for."""
        people = [
            wanted.name,
            *(each.removeprefix(USER_GROUP) for each in wanted.groups if each.startswith(USER_GROUP)),
        ]
        names = filter(self._is_administrator, dict.fromkeys(people))
        return [*sorted(ADMIN_GROUPS.intersection(wanted.groups)), *(f'user "{name}"' for name in names)]

    def _wanted(self, headers: Headers) -> User:
        _refuse_unreadable(headers)
        name = headers.get(USER)
        if not name:
            raise BadRequest("to impersonate groups, a uid or extra values, name the user too: send Impersonate-User")
        groups = tuple(requested_groups(headers))
        known = None if groups else self._user_named(name)
        if known is None:
            known = User(name, (*groups, *_implied(name), AUTHENTICATED))
        uid = headers.get(UID)
        return replace(known, uid=uid or known.uid, extra=_extra(headers), key="", scope=None)


def _asked(headers: Headers) -> Asked:
    names = [name for name in headers.keys() if name.startswith(PREFIX)]  # noqa: SIM118 - they are no mapping
    return tuple([(name, tuple(headers.get_all(name))) for name in names])


def _length(asked: Asked) -> int:
    return sum(len(name) + sum(map(len, values)) for name, values in asked)


def _refuse_unreadable(headers: Headers) -> None:
    """The HTTP server keeps values from us that are no ASCII. Acting without them could be acting with more rights."""
    for name in headers.keys():  # noqa: SIM118 - they are no mapping
        if name.startswith(PREFIX) and not headers.get_all(name):
            raise BadRequest(f"the value of the header {name} cannot be read: it may have ASCII characters only")


def requested_groups(headers: Headers) -> Iterator[str]:
    """The groups that the client names, each once; AUTHENTICATED comes by itself."""
    joined = (name.strip() for text in headers.get_all(JOINED_GROUP) for name in text.split(","))
    for group in dict.fromkeys((*headers.get_all(GROUP), *joined)):
        if group and group != AUTHENTICATED:
            yield group


def _implied(name: str) -> Iterator[str]:
    """The groups that a service account is in by its name."""
    if name.startswith(SERVICE_ACCOUNT):
        namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{namespace}"


def _extra(headers: Headers) -> Extra:
    sent = (header for header in sorted(set(headers.keys())) if header.startswith(EXTRA))
    return merge_extra((unquote(each.removeprefix(EXTRA)), tuple(headers.get_all(each))) for each in sent)


def _rights(wanted: User, headers: Headers) -> Iterator[Target]:
    """What must be allowed, in the order in which it is asked."""
    if wanted.name.startswith(SERVICE_ACCOUNT):
        namespace, _, name = wanted.name.removeprefix(SERVICE_ACCOUNT).partition(":")
        yield _target("serviceaccounts", name, namespace=namespace)
    else:
        yield _target("users", wanted.name)
    for group in requested_groups(headers):
        yield _target("groups", group)
    for key, values in wanted.extra:
        for value in values:
            yield _target("userextras", value, _AUTHENTICATION, subresource=key)
    if headers.get(UID):
        yield _target("uids", wanted.uid, _AUTHENTICATION)


def _target(resource: str, name: str, group: str = "", *, namespace: str = "", subresource: str = "") -> Target:
    return Target("impersonate", "", MANAGEMENT, group, "v1", resource, subresource, namespace, name)
