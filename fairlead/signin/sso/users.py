"""Finds, creates and updates the user of an identity.

A user is found by issuer and subject, and by nothing else: neither a name nor an email address leads to an existing
user. What the provider says is written to the user at each sign-on and refresh.

The name of an object has only lower-case ASCII letters, digits, dashes and dots. A name at a provider may have any
character, so different ones may become the same. Whenever something was lost, or the name is in use, a hash of the
identity is appended. So a name never leads to an existing user: only issuer and subject do.

Objects may refer to names that no user has: of a former user, or of one who is still to come. Users often choose their
name at a provider themselves. A new user must not get the rights that wait for a name, so such names count as taken.
"""

import asyncio
import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from fairlead.authn.sign_on_policy import SignOnReason, evaluate, group_prefix, stored_facts
from fairlead.authn.sign_on_settings import Connector, SignOnConfig
from fairlead.core.errors import AlreadyExists, ApiError, Invalid
from fairlead.core.objects import Object, deep_copy, get_path, metadata, name_of
from fairlead.core.user import USER_GROUP_PREFIX
from fairlead.kinds.access.users import USER
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.informer import Derived, Informer
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import server_write_options
from fairlead.signin.sso.identity import Identity
from fairlead.signin.sso.reasons import SignOnRefused

MAX_BASE_LENGTH = 40
HASH_LENGTHS = (8, 16, 40)
"""Hexadecimal digits of the hash that is appended: the first is enough unless there is a collision."""

_NOT_ALLOWED = re.compile(r"[^a-z0-9.-]+")

_CONFUSABLE = str.maketrans(
    {
        # Cyrillic and Greek letters that look like Latin ones in common fonts
        **dict(zip("аасеорхуіјѕԁһӏԛԝьв", "aaceopxyijsdhlqwbb", strict=True)),
        **dict(zip("αβεηικνορτυχγ", "abeniknoptuxy", strict=True)),
        # Latin letters and symbols, and digits in place of letters
        **dict(zip("\u0131\u0269\u01c0|\u217c\u0261\u0251", "iiiiiga", strict=True)),
        **dict(zip("013457", "oieast", strict=True)),
        "l": "i",
    }
)


def base_name(identity: Identity) -> tuple[str, bool]:
    """A valid object name for an identity, and whether it is exactly the user name at the provider."""
    preferred = identity.username or identity.email or ""
    local = preferred.partition("@")[0] if "@" in preferred else preferred
    slug = re.sub(r"[.-]*\.[.-]*", ".", _NOT_ALLOWED.sub("-", local.lower())).strip("-.")[:MAX_BASE_LENGTH].strip("-.")
    return (slug or "user", bool(slug) and slug == local)


def candidate_names(identity: Identity, *, always_suffix: bool = False) -> list[str]:
    """The names to try for a new user, in order. With `always_suffix`, all have a hash."""
    base, is_exact = base_name(identity)
    digest = hashlib.sha256(f"{identity.issuer}\0{identity.subject}".encode()).hexdigest()
    hashed = [f"{base}-{digest[:length]}" for length in HASH_LENGTHS]
    return [base, *hashed] if is_exact and not always_suffix else hashed


def skeleton(name: str) -> str:
    """What a name looks like: names with the same skeleton are easily mistaken for each other."""
    decomposed = unicodedata.normalize("NFKD", name).casefold()
    visible = (each for each in decomposed if unicodedata.category(each) not in ("Mn", "Me", "Cf", "Cc"))
    return unicodedata.normalize("NFKD", "".join(visible)).translate(_CONFUSABLE)


RBAC_GROUP = "rbac.authorization.k8s.io"
STEP = 2_000
"""Objects that are searched before other work gets its turn."""


async def is_reserved(registry: Registry, api_group: str, name: str) -> bool:
    """Whether a binding, a team, a project or another object refers to a user of this name. Shares of ports do not
    count: they are with one user, and not with a later one of the same name."""
    texts = {name, f"{USER_GROUP_PREFIX}{name}"}
    encoded = [orjson.dumps(text) for text in texts]
    for kind in registry.catalog.kinds:
        if kind.group not in (api_group, RBAC_GROUP) or kind.plural == USER.plural:
            continue
        for position, entry in enumerate(registry.view.entries(kind.group, kind.plural), start=1):
            if any(text in entry.body for text in encoded):
                content = {field: value for field, value in decode(entry).items() if field != "metadata"}
                if not texts.isdisjoint(_strings(content)):
                    return True
            if position % STEP == 0:
                await asyncio.sleep(0)
    return False


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value. Objects in the store are not nested deeply."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


RESEMBLES_ANNOTATION = "service.sh/resembles-user"
"""Set on a new user whose name looks like that of another user."""
MAX_LISTED_GROUPS = 10
"""Groups that an event about a change names."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Index:
    by_identity: dict[tuple[str, str], list[str]]
    by_skeleton: dict[str, str]
    used_names: set[str]


class SignOnUsers:
    """The users of identity providers. Writes as the server itself."""

    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        self._api_group = api_group
        self._users = registry.resource(api_group, USER.plural)
        self._informer = Informer(registry.view, api_group, USER.plural)
        self._index = Derived(registry.view, (self._informer.refresh,), self._build_index)

    def find(self, issuer: str, subject: str) -> Object | None:
        """The user of an identity, as of now. Raises SignOnRefused if there is more than one."""
        names = self._index.get().by_identity.get((issuer, subject), [])
        if len(names) > 1:
            raise SignOnRefused(SignOnReason.USER_AMBIGUOUS, ", ".join(sorted(names)))
        return self._informer.objects.get(("", names[0])) if names else None

    def get(self, name: str) -> Object | None:
        """The user of that name, as of now."""
        self._informer.refresh()
        return self._informer.objects.get(("", name))

    def list_all(self) -> list[Object]:
        """All users of identity providers, sorted by name."""
        self._informer.refresh()
        return [user for _, user in sorted(self._informer.objects.items()) if get_path(user, "spec.issuer")]

    def is_name_used(self, name: str) -> bool:
        """Whether a user has this name or user name."""
        return name in self._index.get().used_names

    @staticmethod
    def is_allowed(user: Object, config: SignOnConfig, connector: Connector) -> bool:
        """Whether the settings still allow a stored user to sign in."""
        return evaluate(config, connector, stored_facts(user, connector)).refusal is None

    async def find_current(self, issuer: str, subject: str) -> Object | None:
        """The same, after all writes that were acknowledged by any replica."""
        with translate_storage_errors():
            await self._registry.view.wait_current()
        return self.find(issuer, subject)

    def resembled_user(self, identity: Identity) -> str:
        """The name of a user that the identity could be mistaken for. Empty if there is none."""
        index = self._index.get()
        own = index.by_identity.get((identity.issuer, identity.subject), [])
        names = (identity.username, identity.username.partition("@")[0], identity.display_name)
        found = (index.by_skeleton.get(skeleton(name), "") for name in names if name)
        return next((name for name in found if name and name not in own), "")

    async def sign_on(self, connector: Connector, identity: Identity) -> Object:
        """The user of an identity that has signed on, created if there is none. Raises SignOnRefused."""
        user = await self.find_current(identity.issuer, identity.subject)
        if user is None:
            if not connector.creates_users:
                raise SignOnRefused(SignOnReason.USER_NOT_FOUND)
            user = await self._create(connector, identity)
        if get_path(user, "spec.disabled") or "deletionTimestamp" in metadata(user):
            raise SignOnRefused(SignOnReason.USER_DISABLED, name_of(user))
        return await self.update(user, connector, identity)

    async def update(self, user: Object, connector: Connector, identity: Identity) -> Object:
        """Writes what the provider says about the user, if it differs, and records how the groups have changed."""
        spec = _spec_fields(connector, identity)
        current = user.get("spec") or {}
        if all((current.get(name) or None) == (value or None) for name, value in spec.items()):
            return user

        def edit(old: Object) -> Object:
            new = deep_copy(old)
            merged = {**(new.get("spec") or {}), **spec}
            new["spec"] = {name: value for name, value in merged.items() if value not in ("", [], None)}
            return new

        await self._users.modify("", name_of(user), edit, server_write_options())
        await self._record_change(user, current.get("ssoGroups") or [], spec["ssoGroups"])
        return decode(await self._users.get("", name_of(user)))

    async def _create(self, connector: Connector, identity: Identity) -> Object:
        resembled = self.resembled_user(identity)
        for name in candidate_names(identity, always_suffix=connector.always_suffix):
            if await is_reserved(self._registry, self._api_group, name):
                continue
            meta: Object = {"name": name}
            if resembled:
                meta["annotations"] = {RESEMBLES_ANNOTATION: resembled}
            spec = {**_spec_fields(connector, identity), "subject": identity.subject, "issuer": identity.issuer}
            spec["displayName"] = identity.display_name or identity.username or name
            known = {field: value for field, value in spec.items() if value not in ("", [])}
            body = self._users.kind.build(meta, spec=known)
            try:
                await self._users.create(body, "", server_write_options())
            except (AlreadyExists, Invalid):  # the name is in use, maybe by a sign-on of this user on another replica
                found = await self.find_current(identity.issuer, identity.subject)
                if found is not None:
                    return found
                continue
            log.info("a user was created at the first sign-on", user=name, connector=connector.id)
            return decode(await self._users.get("", name))
        raise SignOnRefused(SignOnReason.USER_AMBIGUOUS, "no name is free")

    async def _record_change(self, user: Object, before: list[str], after: list[str]) -> None:
        left, joined = [each for each in before if each not in after], [each for each in after if each not in before]
        if not left and not joined:
            return
        changes = "; ".join(_describe(text, groups) for text, groups in (("left", left), ("joined", joined)) if groups)
        try:
            await record_event(self._registry, user, "GroupsChanged", f"at the identity provider, the user {changes}")
        except ApiError as error:  # best effort: the change itself has been written
            log.info("an event about groups was not recorded", user=name_of(user), why=error.reason)

    def _build_index(self) -> _Index:
        by_identity: dict[tuple[str, str], list[str]] = {}
        by_skeleton: dict[str, str] = {}
        used_names: set[str] = set()
        for (_, name), user in self._informer.objects.items():
            issuer = get_path(user, "spec.issuer")
            subject = get_path(user, "spec.subject")
            if issuer and subject:
                by_identity.setdefault((issuer, subject), []).append(name)
            used_names.update((name, get_path(user, "spec.username") or name))
            for text in _visible_names(user):
                by_skeleton.setdefault(skeleton(text), name)
        return _Index(by_identity, by_skeleton, used_names)


def _visible_names(user: Object) -> Iterator[str]:
    yield name_of(user)
    for field in ("username", "displayName"):
        if text := get_path(user, f"spec.{field}"):
            yield text


def _spec_fields(connector: Connector, identity: Identity) -> Object:
    """The fields of the user that the provider determines."""
    claims = {name: list(values) for name, values in sorted(identity.claims.items())}
    trusted: Object = {"emailVerified": identity.is_email_verified}
    if identity.email:
        trusted["email"] = identity.email
    if claims:
        trusted["claims"] = claims
    fields: Object = {
        "ssoGroups": sorted(f"{group_prefix(connector.id)}{group}" for group in identity.groups),
        "ssoIdentity": trusted,
    }
    if identity.email:
        fields["email"] = identity.email
    if identity.display_name:
        fields["displayName"] = identity.display_name
    return fields


def _describe(text: str, groups: list[str]) -> str:
    more = f" and {len(groups) - MAX_LISTED_GROUPS} more" if len(groups) > MAX_LISTED_GROUPS else ""
    return f"{text} {', '.join(groups[:MAX_LISTED_GROUPS])}{more}"
