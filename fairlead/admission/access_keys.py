"""Issues access keys: generates the value, sets the owner, and limits what a requester may delegate.

The value is returned once, in the response to the create; only its digest is stored. A key created with another key has
no wider scope and no longer lifetime than that one (`domain/key_delegation.py`); the same applies to an update that
widens a key. The value changes only by rotation (`authn/key_rotation.py`), and only the server writes the status.

The keys of runners and agents are the exception: clients fetch them repeatedly, so `store_component_key` puts the
value, encrypted at rest, into a Secret in the same commit. `authn/component_keys.py` creates those keys and reads the
Secrets.

Limits the number and the total size of the access keys of one owner.

Users may create keys for themselves without any role, so nothing else bounds what one user puts into the store.

The limits are exact under concurrency: a write that adds to the usage takes the owner's write lock
(`registry/quota/write_locks.py`). Expired keys are deleted, oldest first, to make room. Writes by administrators and by
the server are never rejected, but the keys they create count. Logins have a separate limit; the server deletes the
oldest logins (`signin/login_sessions.py`), so users cannot lock themselves out.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import QUOTA, Details, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.key_delegation import Delegator, ScopeCovers, delegation_problem, delegator_for, is_widening
from fairlead.domain.key_lifetime import (
    COOLDOWN_LABEL,
    COOLDOWN_SECONDS,
    MAX_COOLDOWN_SECONDS,
    OWNER_FIELDS,
    is_valid_cooldown,
    ttl_seconds,
)
from fairlead.kinds.access.access_key import (
    LOGIN_TYPE,
    MAX_LOGINS,
    OWNED_ACCESS_KEY,
    Owner,
    key_digest_index,
    key_usage_index,
    owner_reference,
    usage_category,
)
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.kinds.core.service_account import UID_LABEL, account_uid, parse_account_username
from fairlead.registry.codec import decode
from fairlead.registry.informer import OwnerUsageIndex, UsageEntry
from fairlead.registry.kind import Change
from fairlead.registry.quota import write_locks
from fairlead.registry.registry import Registry
from fairlead.registry.request_body import enforced_problems
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.validate import build_validator
from fairlead.registry.write_options import server_write_options
from fairlead.registry.write_rules import is_removal
from fairlead.storage.contract import Key, Write

KEY_PATH = "spec.key"
MIN_VALUE_LENGTH, MAX_VALUE_LENGTH = 16, 512
EMPTY_SCOPE_WARNING = (
    "spec.scope is empty: the key can only query its own identity; leave the scope out for an unrestricted key"
)

_OWNER_KINDS = {"user": ("User", "users"), "team": ("Team", "teams")}
_SERVER_TYPES = ("Login", "OIDCRefreshToken")
_SIGN_ON_FIELDS = ("identity", "oidcProvider", "parent")
_HEADER_SAFE = re.compile(r"[!-~]+")


class KeyDigester(Protocol):
    """Computes the stored digest of a key; implemented in `authn/access_keys.py`."""

    def digest(self, key: str) -> str: ...


@dataclass(frozen=True, slots=True)
class KeyIssuer:
    """What is needed to issue keys. `max_ttl` returns the maximum lifetime in seconds, 0 for none; it may change."""

    digester: KeyDigester
    generate_key: Callable[[], str]
    covers: ScopeCovers
    max_ttl: Callable[[], int] = lambda: 0


def issue_access_key(issuer: KeyIssuer, api_group: str) -> Rule:
    """Issues new access keys and checks updates."""
    shape = OWNED_ACCESS_KEY.derive(build_validator)
    digests: OwnerUsageIndex | None = None

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal digests
        if change.user != CONTROLLER_USER and change.subresource == "status":
            raise _forbidden(change, "only the server may write the status of access keys; leave it out")
        if change.subresource or enforced_problems(shape.validate(change.obj, change.old).problems, change.user):
            return  # schema validation rejects it
        change.obj.setdefault("spec", {})
        if change.verb == "create":
            if digests is None:
                digests = key_digest_index(registry.view, api_group)
            _issue_key(change, registry, issuer, digests)
        elif change.user != CONTROLLER_USER:
            _check_update(change, registry, issuer)

    return rule


def _issue_key(change: Change, registry: Registry, issuer: KeyIssuer, digests: OwnerUsageIndex) -> None:
    delegator = _delegator(change, registry)
    if not any(change.spec.get(field) for field in OWNER_FIELDS):
        field, name = delegator.owner
        if not name:
            raise _forbidden(change, f'there is no active user "{change.user.name}" to issue a key for')
        change.spec[field] = name
    _check_service_account(change)  # after the default owner is set, which may be a service account
    if change.spec.get("type") is None:
        change.spec["type"] = "User"
    if change.user != CONTROLLER_USER:
        _check_sign_on_fields(change)
    _check_delegation(change, delegator, registry, issuer)
    _check_ttl(change, issuer)
    _set_digest(change, issuer, digests)
    _set_owner_reference(change, registry)
    _warn_empty_scope(change)


def _check_service_account(change: Change) -> None:
    """Only the server issues keys of service accounts: it binds them to the uid of the account."""
    namespace, name = parse_account_username(str(change.spec.get("subject") or ""))
    if namespace and change.user != CONTROLLER_USER:
        raise _forbidden(change, f"request a token of the service account: kubectl create token {name} -n {namespace}")
    _check_account_label(change)


def _check_account_label(change: Change) -> None:
    """Rejects changes to the label with the uid of the service account, which only the server sets."""
    if change.user != CONTROLLER_USER and account_uid(change.old or {}) != account_uid(change.obj):
        why = f"the server sets the label {UID_LABEL} on tokens of service accounts; leave it as it is"
        raise _forbidden(change, why)


def _check_update(change: Change, registry: Registry, issuer: KeyIssuer) -> None:
    old, new = change.old or {}, change.obj
    _check_account_label(change)
    _check_value_unchanged(change, issuer)
    if change.spec.get("type") is None and get_path(old, "spec.type") is not None:
        change.spec["type"] = get_path(old, "spec.type")
    _check_sign_on_fields(change)
    if is_widening(old, new, issuer.covers):
        delegator = _delegator(change, registry)
        _check_delegation(change, delegator, registry, issuer)
    if ttl_seconds(old) != ttl_seconds(new):
        _check_ttl(change, issuer)
    _keep_owner_reference(change)
    if get_path(old, "spec.scope") != change.spec.get("scope"):
        _warn_empty_scope(change)


def _check_sign_on_fields(change: Change) -> None:
    """Protects what makes a key a login, and ties it to a single sign-on.

    Otherwise users could issue themselves logins that no session ends, or detach a login from its session. Only the
    server writes logins. In other keys the fields give no access; administrators may set them, to restore exported
    keys. Sending a value back unchanged is always allowed.
    """
    before = get_path(change.old or {}, "spec.type")
    after = change.spec.get("type")
    is_server_managed = before in _SERVER_TYPES
    if before != after and (is_server_managed or after in _SERVER_TYPES):
        if change.old is None:
            raise _forbidden(change, f"only the server creates keys of type {after}; leave spec.type out, or sign in")
        why = f"only the server changes spec.type to or from {' and '.join(_SERVER_TYPES)}; leave it as it is"
        raise _forbidden(change, f"{why}, or delete the key")
    for field in _SIGN_ON_FIELDS:
        old = get_path(change.old or {}, f"spec.{field}") or None
        new = change.spec.get(field) or None
        if old == new:
            continue
        if is_server_managed:
            why = f"the server manages spec.{field} of a login; leave it as it is, or delete the key"
            raise _forbidden(change, why)
        if new is not None and not change.user.is_unscoped_admin:
            raise _forbidden(change, f"only administrators may set spec.{field}; leave it as it is, or ask one of them")


def _delegator(change: Change, registry: Registry) -> Delegator:
    return delegator_for(change.user, registry.resource(change.kind.group, change.kind.plural))


def _check_delegation(change: Change, delegator: Delegator, registry: Registry, issuer: KeyIssuer) -> None:
    why = delegation_problem(delegator, change.obj, issuer.covers, registry.clock.now())
    if why is not None:
        raise _forbidden(change, why)


def _check_ttl(change: Change, issuer: KeyIssuer) -> None:
    ttl = ttl_seconds(change.obj)
    maximum = issuer.max_ttl()
    if maximum and change.user != CONTROLLER_USER and not 0 < ttl <= maximum:
        why = f"must be between 1 and {maximum}, the maximum lifetime of keys on this server"
        raise _invalid(change, Problem.invalid("spec.ttl", ttl, why))


def _set_digest(change: Change, issuer: KeyIssuer, digests: OwnerUsageIndex) -> None:
    """Replaces the value with its digest. When the commit is retried after a conflict, the value generated in the
    first attempt is reused."""
    value = change.one_time_fields.get(KEY_PATH)
    if value is None:
        value = change.spec.get("key") or ""
        if value:
            _check_value(change, value, issuer, digests)
        else:
            value = issuer.generate_key()
        if not change.dry_run:  # a dry run stores no key, so the value would never work
            change.one_time_fields[KEY_PATH] = value
    change.spec["key"] = issuer.digester.digest(value)


def _check_value(change: Change, value: str, issuer: KeyIssuer, digests: OwnerUsageIndex) -> None:
    """Validates a value that the requester chose. Error messages must not contain it."""
    if not MIN_VALUE_LENGTH <= len(value) <= MAX_VALUE_LENGTH or not _HEADER_SAFE.fullmatch(value):
        why = (
            f"must be {MIN_VALUE_LENGTH} to {MAX_VALUE_LENGTH} ASCII characters without spaces; leave it out for "
            "a new one"
        )
        raise _invalid(change, Problem(KEY_PATH, "FieldValueInvalid", f"Invalid value: {why}"))
    # An object with the same name is reported as AlreadyExists instead.
    if any(key[3] != name_of(change.obj) for key in digests.get(issuer.digester.digest(value))):
        why = "this value cannot be used; choose another one, or leave it out for a new one"
        raise _invalid(change, Problem(KEY_PATH, "FieldValueDuplicate", f"Duplicate value: {why}"))


def _check_value_unchanged(change: Change, issuer: KeyIssuer) -> None:
    """Accepts the current value, so that a manifest can be applied again, and rejects any other one."""
    stored = get_path(change.old or {}, KEY_PATH)
    sent = change.spec.get("key")
    if sent and sent != stored and issuer.digester.digest(sent) != stored:
        why = f"an update cannot change the value of a key: create {change.kind.plural}/<name>/rotate for a new one"
        raise _invalid(change, Problem.forbidden(KEY_PATH, why))
    if stored is not None:
        change.spec["key"] = stored


def _set_owner_reference(change: Change, registry: Registry) -> None:
    """Adds an owner reference to the user or team, so that the key is garbage collected with it."""
    for field, (kind, plural) in _OWNER_KINDS.items():
        name = change.spec.get(field)
        if not name:
            continue
        entry = registry.resource(change.kind.group, plural).get_cached("", name)
        if entry is None:
            why = f"there is no {kind.lower()} with that name; create it first, or name another one"
            raise _invalid(change, Problem.invalid(f"spec.{field}", name, why))
        reference = owner_reference(decode(entry))
        meta = metadata(change.obj)
        others = [each for each in meta.get("ownerReferences") or () if not _is_principal(each)]
        meta["ownerReferences"] = [*others, reference]


def _keep_owner_reference(change: Change) -> None:
    """Keeps the owner references to users and teams as they were."""
    meta = metadata(change.obj)
    retained = [each for each in metadata(change.old or {}).get("ownerReferences") or () if _is_principal(each)]
    others = [each for each in meta.pop("ownerReferences", None) or () if not _is_principal(each)]
    if retained or others:
        meta["ownerReferences"] = [*others, *retained]


def _is_principal(reference: Object) -> bool:
    return reference.get("kind") in ("User", "Team")


def _warn_empty_scope(change: Change) -> None:
    sent = change.spec.get("scope")
    if isinstance(sent, dict) and sent.get("rules"):
        return  # not empty; its rules may be many, and need not be parsed
    scope = Scope.parse(sent)
    if scope is not None and scope.is_empty:
        change.warnings.append(EMPTY_SCOPE_WARNING)


def _invalid(change: Change, problem: Problem) -> Invalid:
    return Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), [problem])


def _forbidden(change: Change, reason: str) -> Forbidden:
    kind, name = change.kind, name_of(change.obj)
    message = f'{qualified_resource(kind.plural, kind.group)} "{name}" is forbidden: {reason}'
    return Forbidden(message, Details(name, kind.group, kind.plural))


def store_component_key(api_group: str, namespace: str, components: Sequence[Component]) -> Rule:
    """Stores the value of a runner's or agent's key in a Secret in `namespace`. Must run after `issue_access_key`."""

    @applies_to(lambda kind, verb: verb == "create" and is_resource(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user != CONTROLLER_USER or change.dry_run:
            return
        for sort in components:
            subject = get_path(change.obj, "spec.subject") or ""
            if sort.label in (metadata(change.obj).get("labels") or {}) and subject.startswith(sort.subject_prefix):
                secret = _build_secret(change, sort, subject.removeprefix(sort.subject_prefix), namespace)
                change.extra_writes.append(
                    await registry.resource("", "secrets").build_create_write(secret, server_write_options())
                )

    return rule


def _build_secret(change: Change, component: Component, name: str, namespace: str) -> Object:
    meta = metadata(change.obj)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": component.key_secret_name(name),
            "namespace": namespace,
            "labels": {component.label: component.label_value(name)},
            "annotations": {KEY_ANNOTATION: meta["name"]},
            "ownerReferences": meta.get("ownerReferences") or [],
        },
        "type": component.secret_type,
        "data": {"accessKey": b64encode(change.one_time_fields[KEY_PATH].encode()).decode()},
    }


MAX_EXEMPT_BYTES = 4096
"""An update that leaves a key at this many bytes or fewer is always accepted: owners over the limit must still be able
to disable their keys."""
_OWNER_FIELDS = {"users": "user", "teams": "team"}
BYTES_PER_KEY = 10 * 1024
MIN_TOTAL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits per owner."""

    max_keys: int
    max_bytes: int
    """Total size in bytes of all keys of the owner."""

    @staticmethod
    def for_count(max_keys: int) -> "KeyLimits":
        """So many keys, with 10 KiB for each, and at least 1 MiB in total."""
        return KeyLimits(max_keys, max(MIN_TOTAL_BYTES, max_keys * BYTES_PER_KEY))


def enforce_key_limits(api_group: str, limits: KeyLimits) -> Rule:
    """Rejects access keys beyond the limits. Must run after `issue_access_key`, which sets the owner."""
    counted: OwnerUsageIndex | None = None

    @applies_to(lambda kind, verb: is_resource(kind, api_group, OWNED_ACCESS_KEY.plural, *_OWNER_FIELDS))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal counted
        if change.kind.plural in _OWNER_FIELDS:
            _delete_lock(change, registry)
        elif change.new is not None and not change.subresource and change.user != CONTROLLER_USER:
            _check_cooldown(change)
            if not change.user.is_unscoped_admin:
                if counted is None:
                    counted = key_usage_index(registry.view, api_group)
                await _enforce_limits(change, registry, counted, limits)

    return rule


def _check_cooldown(change: Change) -> None:
    old, new = (_cooldown_label(each) for each in (change.old or {}, change.obj))
    if new is None or old == new:
        return
    kind, name = change.kind, name_of(change.obj)
    if not change.user.is_unscoped_admin:
        why = f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"
        raise Forbidden.of(kind.plural, kind.group, name, why)
    if not is_valid_cooldown(new):
        why = f"must be a whole number of seconds between {COOLDOWN_SECONDS} and {MAX_COOLDOWN_SECONDS}"
        problem = Problem.invalid(f"metadata.labels[{COOLDOWN_LABEL}]", new, why)
        raise Invalid.of(kind.name, kind.group, name, [problem])


def _cooldown_label(key: Object) -> object:
    labels = metadata(key).get("labels")
    return labels.get(COOLDOWN_LABEL) if isinstance(labels, dict) else None


async def _enforce_limits(change: Change, registry: Registry, usage: OwnerUsageIndex, limits: KeyLimits) -> None:
    owner = _owner_of(change.obj)
    if owner is None or _try_reserve(change, registry, usage.get(owner), limits) is None:
        return
    # Another replica may have deleted keys and this view may not have caught up yet.
    with translate_storage_errors():
        await registry.view.wait_current()
    why = _try_reserve(change, registry, usage.get(owner), limits)
    if why is not None:
        kind = change.kind
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why, refused_by=QUOTA)


def _owner_of(key: Object) -> Owner | None:
    spec = key.get("spec")
    if not isinstance(spec, dict):
        return None
    return next(((field, name) for field in OWNER_FIELDS if isinstance(name := spec.get(field), str) and name), None)


def _try_reserve(change: Change, registry: Registry, owned: Mapping[Key, UsageEntry], limits: KeyLimits) -> str | None:
    """Returns why the change exceeds the limits. If it does not, adds the write lock and the deletion of expired keys
    to its commit and returns None.

    Must not await: the count and the lock's revision have to be read from the same state of the view.
    """
    obj = change.obj
    key = change.kind.key("", metadata(obj).get("name") or "")
    current = owned.get(key)
    sort = usage_category(get_path(obj, "spec.type"))
    adds, size = current is None or current.category != sort, len(orjson.dumps(obj))
    if current is not None and not adds and size <= max(current.size, MAX_EXEMPT_BYTES):
        return None
    others = {each: found for each, found in owned.items() if each != key}
    evicted = _keys_to_evict(others, sort, size, adds, limits)
    if evicted is None:
        return _limit_message(change, others, sort, size, adds, limits)
    change.extra_writes.append(write_locks.acquire_lock(registry.view, _lock_key(change.kind.group, _owner_of(obj))))
    change.extra_writes.extend(Write(each, None, others[each].revision) for each in evicted)
    return None


def _keys_to_evict(
    others: Mapping[Key, UsageEntry], key_type: str, size: int, is_new: bool, limits: KeyLimits
) -> list[Key] | None:
    """The expired keys to delete, oldest first, so that the new key fits; None if that is not enough."""
    count = sum(each.category == key_type for each in others.values()) + is_new
    total = sum(each.size for each in others.values()) + size
    ended = sorted((each.ended_at, key) for key, each in others.items() if each.ended_at and not each.has_finalizers)
    evicted: list[Key] = []
    for _, key in ended:
        if not _exceeds_limits(count, total, key_type, is_new, limits):
            break
        count -= others[key].category == key_type
        total -= others[key].size
        evicted.append(key)
    return None if _exceeds_limits(count, total, key_type, is_new, limits) else evicted


def _exceeds_limits(count: int, total: int, key_type: str, is_new: bool, limits: KeyLimits) -> bool:
    return (is_new and count > _max_count(key_type, limits)) or total > limits.max_bytes


def _max_count(key_type: str, limits: KeyLimits) -> int:
    return MAX_LOGINS if key_type == LOGIN_TYPE else limits.max_keys


def _limit_message(
    change: Change, others: Mapping[Key, UsageEntry], key_type: str, size: int, is_new: bool, limits: KeyLimits
) -> str:
    field, name = _owner_of(change.obj) or ("user", "")
    count = sum(each.category == key_type for each in others.values())
    most = _max_count(key_type, limits)
    if is_new and count + 1 > most:
        what = "logins" if key_type == LOGIN_TYPE else "access keys"
        how = "" if key_type == LOGIN_TYPE else ", or have an administrator raise the setting access_keys_per_owner"
        return f'{field} "{name}" has {count} {what}, and the limit is {most}; delete those that are not needed{how}'
    total = sum(each.size for each in others.values()) + size
    return (
        f'the access keys of {field} "{name}" would take {total} bytes in total, and the limit is {limits.max_bytes}; '
        "delete those that are not needed, use fewer labels, annotations and scope entries, or have an administrator "
        f"raise the setting access_keys_per_owner, which allows {BYTES_PER_KEY >> 10} KiB for each"
    )


def _lock_key(api_group: str, owner: Owner | None) -> Key:
    """Projects use the same lock namespace; the colons keep the two apart, since object names have none."""
    field, name = owner or ("", "")
    return write_locks.lock_key(api_group, f"keys:{field}:{name}")


def _delete_lock(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the user or team."""
    if is_removal(change):
        owner = _OWNER_FIELDS[change.kind.plural], name_of(change.obj)
        write = write_locks.delete_lock(registry.view, _lock_key(change.kind.group, owner))
        if write is not None:
            change.extra_writes.append(write)
