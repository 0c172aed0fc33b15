"""Issues access keys: generates the value, sets the owner, and limits what a requester may delegate.

The value is returned once, in the response to the create; only its digest is stored. A key created with another key has
no wider scope and no longer lifetime than that one (`domain/key_delegation.py`); the same applies to an update that
widens a key. The value changes only by rotation (`authn/key_rotation.py`), and only the server writes the status.

The keys of runners and agents are the exception: clients fetch them repeatedly, so `store_component_key` puts the
value, encrypted at rest, into a Secret in the same commit. `authn/component_keys.py` creates those keys and reads the
Secrets.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.admission import Rule, concerning, is_one_of
from fairlead.core.errors import Details, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER
from fairlead.domain.access_key_usage import key_digests
from fairlead.domain.key_delegation import Covers, Holder, holder_of, overreach, widens
from fairlead.domain.key_lifetime import ttl_of
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY, OWNERS, owner_reference
from fairlead.kinds.access.components import KEY_ANNOTATION, Component
from fairlead.kinds.core.service_account import UID_LABEL, account_of, account_uid
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.owner_usage import Holdings
from fairlead.registry.registry import Registry
from fairlead.registry.request_body import counting
from fairlead.registry.validate import Validator
from fairlead.registry.write_options import by_the_server

KEY_PATH = "spec.key"
MIN_LENGTH, MAX_LENGTH = 16, 512
EMPTY_SCOPE = (
    "spec.scope is empty: the key can only query its own identity; leave the scope out for an unrestricted key"
)

_OWNER_KINDS = {"user": ("User", "users"), "team": ("Team", "teams")}
_FIT_FOR_A_HEADER = re.compile(r"[!-~]+")


class Digests(Protocol):
    """Computes the stored digest of a key; implemented in `authn/access_keys.py`."""

    def digest(self, key: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Mint:
    """What is needed to issue keys. `max_ttl` returns the maximum lifetime in seconds, 0 for none; it may change."""

    pepper: Digests
    new_key: Callable[[], str]
    covers: Covers
    max_ttl: Callable[[], int] = lambda: 0


def minting(mint: Mint, api_group: str) -> Rule:
    """Issues new access keys and checks updates."""
    shape = Validator(OWNED_ACCESS_KEY.schema())
    digests: Holdings | None = None

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        nonlocal digests
        if change.user != CONTROLLER and change.subresource == "status":
            raise _forbidden(change, "only the server may write the status of access keys; leave it out")
        if change.subresource or counting(shape.examine(change.obj, change.old).problems, change.user):
            return  # schema validation rejects it
        change.obj.setdefault("spec", {})
        if change.verb == "create":
            if digests is None:
                digests = key_digests(registry.view, api_group)
            _create(change, registry, mint, digests)
        elif change.user != CONTROLLER:
            _update(change, registry, mint)

    return rule


def _create(change: Change, registry: Registry, mint: Mint, digests: Holdings) -> None:
    holder = _holder(change, registry)
    if not any(change.spec.get(field) for field in OWNERS):
        field, name = holder.owner
        if not name:
            raise _forbidden(change, f'there is no active user "{change.user.name}" to issue a key for')
        change.spec[field] = name
    _refuse_account(change)  # after the default owner is set, which may be a service account
    if change.spec.get("type") is None:
        change.spec["type"] = "User"
    _refuse_overreach(change, holder, registry, mint)
    _check_ttl(change, mint)
    _set_value(change, mint, digests)
    _belong(change, registry)
    _warn(change)


def _refuse_account(change: Change) -> None:
    """Only the server issues keys of service accounts: it binds them to the uid of the account."""
    namespace, name = account_of(str(change.spec.get("subject") or ""))
    if namespace and change.user != CONTROLLER:
        raise _forbidden(change, f"request a token of the service account: kubectl create token {name} -n {namespace}")
    _keep_account(change)


def _keep_account(change: Change) -> None:
    """Rejects changes to the label with the uid of the service account, which only the server sets."""
    if change.user != CONTROLLER and account_uid(change.old or {}) != account_uid(change.obj):
        why = f"the server sets the label {UID_LABEL} on tokens of service accounts; leave it as it is"
        raise _forbidden(change, why)


def _update(change: Change, registry: Registry, mint: Mint) -> None:
    old, new = change.old or {}, change.obj
    _keep_account(change)
    _keep_value(change, mint)
    if change.spec.get("type") is None and dig(old, "spec.type") is not None:
        change.spec["type"] = dig(old, "spec.type")
    if widens(old, new, mint.covers):
        holder = _holder(change, registry)
        _refuse_overreach(change, holder, registry, mint)
    if ttl_of(old) != ttl_of(new):
        _check_ttl(change, mint)
    _stay_owned(change)
    if dig(old, "spec.scope") != change.spec.get("scope"):
        _warn(change)


def _holder(change: Change, registry: Registry) -> Holder:
    return holder_of(change.user, registry.resource(change.kind.group, change.kind.plural))


def _refuse_overreach(change: Change, holder: Holder, registry: Registry, mint: Mint) -> None:
    why = overreach(holder, change.obj, mint.covers, registry.clock.now())
    if why is not None:
        raise _forbidden(change, why)


def _check_ttl(change: Change, mint: Mint) -> None:
    ttl, maximum = ttl_of(change.obj), mint.max_ttl()
    if maximum and change.user != CONTROLLER and not 0 < ttl <= maximum:
        why = f"must be between 1 and {maximum}, the maximum lifetime of keys on this server"
        raise _invalid(change, Problem.invalid("spec.ttl", ttl, why))


def _set_value(change: Change, mint: Mint, digests: Holdings) -> None:
    """Replaces the value with its digest. When the commit is retried after a conflict, the value generated in the
    first attempt is reused."""
    value = change.once.get(KEY_PATH)
    if value is None:
        value = change.spec.get("key") or ""
        if value:
            _check_value(change, value, mint, digests)
        else:
            value = mint.new_key()
        if not change.dry_run:  # a dry run stores no key, so the value would never work
            change.once[KEY_PATH] = value
    change.spec["key"] = mint.pepper.digest(value)


def _check_value(change: Change, value: str, mint: Mint, digests: Holdings) -> None:
    """Validates a value that the requester chose. Error messages must not contain it."""
    if not MIN_LENGTH <= len(value) <= MAX_LENGTH or not _FIT_FOR_A_HEADER.fullmatch(value):
        why = f"must be {MIN_LENGTH} to {MAX_LENGTH} ASCII characters without spaces; leave it out for a new one"
        raise _invalid(change, Problem(KEY_PATH, "FieldValueInvalid", f"Invalid value: {why}"))
    # An object with the same name is reported as AlreadyExists instead.
    if any(key[3] != name_of(change.obj) for key in digests.of(mint.pepper.digest(value))):
        why = "this value cannot be used; choose another one, or leave it out for a new one"
        raise _invalid(change, Problem(KEY_PATH, "FieldValueDuplicate", f"Duplicate value: {why}"))


def _keep_value(change: Change, mint: Mint) -> None:
    """Accepts the current value, so that a manifest can be applied again, and rejects any other one."""
    stored, sent = dig(change.old or {}, KEY_PATH), change.spec.get("key")
    if sent and sent != stored and mint.pepper.digest(sent) != stored:
        why = f"an update cannot change the value of a key: create {change.kind.plural}/<name>/rotate for a new one"
        raise _invalid(change, Problem.forbidden(KEY_PATH, why))
    if stored is not None:
        change.spec["key"] = stored


def _belong(change: Change, registry: Registry) -> None:
    """Adds an owner reference to the user or team, so that the key is garbage collected with it."""
    for field, (kind, plural) in _OWNER_KINDS.items():
        name = change.spec.get(field)
        if not name:
            continue
        entry = registry.resource(change.kind.group, plural).peek("", name)
        if entry is None:
            why = f"there is no {kind.lower()} with that name; create it first, or name another one"
            raise _invalid(change, Problem.invalid(f"spec.{field}", name, why))
        reference = owner_reference(decode(entry))
        meta = metadata(change.obj)
        others = [each for each in meta.get("ownerReferences") or () if not _is_identity(each)]
        meta["ownerReferences"] = [*others, reference]


def _stay_owned(change: Change) -> None:
    """Keeps the owner references to users and teams as they were."""
    meta = metadata(change.obj)
    kept = [each for each in metadata(change.old or {}).get("ownerReferences") or () if _is_identity(each)]
    others = [each for each in meta.pop("ownerReferences", None) or () if not _is_identity(each)]
    if kept or others:
        meta["ownerReferences"] = [*others, *kept]


def _is_identity(reference: Object) -> bool:
    return reference.get("kind") in ("User", "Team")


def _warn(change: Change) -> None:
    scope = Scope.of(change.spec.get("scope"))
    if scope is not None and scope.holds_nothing:
        change.warnings.append(EMPTY_SCOPE)


def _invalid(change: Change, problem: Problem) -> Invalid:
    return Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), [problem])


def _forbidden(change: Change, why: str) -> Forbidden:
    kind, name = change.kind, name_of(change.obj)
    message = f'{qualified(kind.plural, kind.group)} "{name}" is forbidden: {why}'
    return Forbidden(message, Details(name, kind.group, kind.plural))


def component_keys(api_group: str, namespace: str, components: Sequence[Component]) -> Rule:
    """Stores the value of a runner's or agent's key in a Secret in `namespace`. Must run after `issue_access_key`."""

    @concerning(lambda kind, verb: verb == "create" and is_one_of(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user != CONTROLLER or change.dry_run:
            return
        for sort in components:
            subject = dig(change.obj, "spec.subject") or ""
            if sort.label in (metadata(change.obj).get("labels") or {}) and subject.startswith(sort.subject_prefix):
                secret = _secret(change, sort, subject.removeprefix(sort.subject_prefix), namespace)
                change.also.append(await registry.resource("", "secrets").draft(secret, by_the_server()))

    return rule


def _secret(change: Change, sort: Component, name: str, namespace: str) -> Object:
    meta = metadata(change.obj)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": sort.key_secret(name),
            "namespace": namespace,
            "labels": {sort.label: sort.label_value(name)},
            "annotations": {KEY_ANNOTATION: meta["name"]},
            "ownerReferences": meta.get("ownerReferences") or [],
        },
        "type": sort.secret_type,
        "data": {"accessKey": b64encode(change.once[KEY_PATH].encode()).decode()},
    }
