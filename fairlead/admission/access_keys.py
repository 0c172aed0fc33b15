"""Issues access keys: generates the value, sets the owner, and limits what a requester may delegate.

The value is returned once, in the response to the create; only its digest is stored. A key created with another key has
no wider scope and no longer lifetime than that one (`domain/key_delegation.py`); the same applies to an update that
widens a key. The value changes only by rotation (`authn/key_rotation.py`), and only the server writes the status.

The keys of runners and agents are the exception: clients fetch them repeatedly, so `store_component_key` puts the
value, encrypted at rest, into a Secret in the same commit. `authn/component_keys.py` creates those keys and reads the
Secrets.

`restrict_cooldown_label` leaves the interval between two records of a key's last use to administrators.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.admission import Rule, applies_to, forbidden, invalid, is_resource
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, get_path, labels_of, metadata, name_of
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.key_delegation import Delegator, ScopeCovers, delegation_problem, delegator_for, is_widening
from fairlead.domain.key_lifetime import (
    COOLDOWN_LABEL,
    COOLDOWN_SECONDS,
    KEY_OWNER_FIELDS,
    MAX_COOLDOWN_SECONDS,
    is_valid_cooldown,
    ttl_seconds,
)
from fairlead.kinds.access.access_key import (
    OWNED_ACCESS_KEY,
    key_digest_index,
    owner_reference,
)
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.kinds.core.service_account import UID_LABEL, account_uid, parse_account_username
from fairlead.registry.codec import decode
from fairlead.registry.informer import OwnerUsageIndex
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.request_body import enforced_problems
from fairlead.registry.validate import build_validator
from fairlead.registry.write_options import server_write_options

KEY_PATH = "spec.key"
MIN_VALUE_LENGTH, MAX_VALUE_LENGTH = 16, 512
EMPTY_SCOPE_WARNING = (
    "spec.scope is empty: the key can only query its own identity; leave the scope out for an unrestricted key"
)

_OWNER_KIND_BY_FIELD = {"user": ("User", "users"), "team": ("Team", "teams")}
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
            raise forbidden(change, "only the server may write the status of access keys; leave it out")
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
    if not any(change.spec.get(field) for field in KEY_OWNER_FIELDS):
        field, name = delegator.owner
        if not name:
            raise forbidden(change, f'there is no active user "{change.user.name}" to issue a key for')
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
        raise forbidden(change, f"request a token of the service account: kubectl create token {name} -n {namespace}")
    _check_account_label(change)


def _check_account_label(change: Change) -> None:
    """Rejects changes to the label with the uid of the service account, which only the server sets."""
    if change.user != CONTROLLER_USER and account_uid(change.old or {}) != account_uid(change.obj):
        why = f"the server sets the label {UID_LABEL} on tokens of service accounts; leave it as it is"
        raise forbidden(change, why)


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
            raise forbidden(change, f"only the server creates keys of type {after}; leave spec.type out, or sign in")
        why = f"only the server changes spec.type to or from {' and '.join(_SERVER_TYPES)}; leave it as it is"
        raise forbidden(change, f"{why}, or delete the key")
    for field in _SIGN_ON_FIELDS:
        old = get_path(change.old or {}, f"spec.{field}") or None
        new = change.spec.get(field) or None
        if old == new:
            continue
        if is_server_managed:
            why = f"the server manages spec.{field} of a login; leave it as it is, or delete the key"
            raise forbidden(change, why)
        if new is not None and not change.user.is_unscoped_admin:
            raise forbidden(change, f"only administrators may set spec.{field}; leave it as it is, or ask one of them")


def _delegator(change: Change, registry: Registry) -> Delegator:
    return delegator_for(change.user, registry.resource(change.kind.group, change.kind.plural))


def _check_delegation(change: Change, delegator: Delegator, registry: Registry, issuer: KeyIssuer) -> None:
    why = delegation_problem(delegator, change.obj, issuer.covers, registry.clock.now())
    if why is not None:
        raise forbidden(change, why)


def _check_ttl(change: Change, issuer: KeyIssuer) -> None:
    ttl = ttl_seconds(change.obj)
    maximum = issuer.max_ttl()
    if maximum and change.user != CONTROLLER_USER and not 0 < ttl <= maximum:
        why = f"must be between 1 and {maximum}, the maximum lifetime of keys on this server"
        raise invalid(change, Problem.invalid("spec.ttl", ttl, why))


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
        raise invalid(change, Problem(KEY_PATH, "FieldValueInvalid", f"Invalid value: {why}"))
    # An object with the same name is reported as AlreadyExists instead.
    if any(key[3] != name_of(change.obj) for key in digests.get(issuer.digester.digest(value))):
        why = "this value cannot be used; choose another one, or leave it out for a new one"
        raise invalid(change, Problem(KEY_PATH, "FieldValueDuplicate", f"Duplicate value: {why}"))


def _check_value_unchanged(change: Change, issuer: KeyIssuer) -> None:
    """Accepts the current value, so that a manifest can be applied again, and rejects any other one."""
    stored = get_path(change.old or {}, KEY_PATH)
    sent = change.spec.get("key")
    if sent and sent != stored and issuer.digester.digest(sent) != stored:
        why = f"an update cannot change the value of a key: create {change.kind.plural}/<name>/rotate for a new one"
        raise invalid(change, Problem.forbidden(KEY_PATH, why))
    if stored is not None:
        change.spec["key"] = stored


def _set_owner_reference(change: Change, registry: Registry) -> None:
    """Adds an owner reference to the user or team, so that the key is garbage collected with it."""
    for field, (kind, plural) in _OWNER_KIND_BY_FIELD.items():
        name = change.spec.get(field)
        if not name:
            continue
        entry = registry.resource(change.kind.group, plural).get_cached("", name)
        if entry is None:
            why = f"there is no {kind.lower()} with that name; create it first, or name another one"
            raise invalid(change, Problem.invalid(f"spec.{field}", name, why))
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


def store_component_key(api_group: str, namespace: str, components: Sequence[Component]) -> Rule:
    """Stores the value of a runner's or agent's key in a Secret in `namespace`. Must run after `issue_access_key`."""

    @applies_to(lambda kind, verb: verb == "create" and is_resource(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user != CONTROLLER_USER or change.dry_run:
            return
        labels = labels_of(change.obj)
        subject = get_path(change.obj, "spec.subject") or ""
        for component in components:
            if component.label in labels and subject.startswith(component.subject_prefix):
                name = subject.removeprefix(component.subject_prefix)
                secret = _build_secret(change, component, name, namespace)
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


def restrict_cooldown_label(api_group: str) -> Rule:
    """Rejects the label with the interval between two records of a key's last use, unless an administrator sets it."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.new is None or change.subresource or change.user == CONTROLLER_USER:
            return
        value = _cooldown_label(change.obj)
        if value is None or value == _cooldown_label(change.old or {}):
            return
        if not change.user.is_unscoped_admin:
            raise forbidden(change, f"only administrators may set the label {COOLDOWN_LABEL}; leave it out")
        if not is_valid_cooldown(value):
            why = f"must be a whole number of seconds between {COOLDOWN_SECONDS} and {MAX_COOLDOWN_SECONDS}"
            raise invalid(change, Problem.invalid(f"metadata.labels[{COOLDOWN_LABEL}]", value, why))

    return rule


def _cooldown_label(key: Object) -> object:
    labels = metadata(key).get("labels")
    return labels.get(COOLDOWN_LABEL) if isinstance(labels, dict) else None
