"""Parses query parameters into options. Error messages match those of Kubernetes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.core.call import DRY_RUN_ANNOTATION, Call
from fairlead.core.errors import BadRequest, Invalid, Problem, quote_value, truncate
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.list import ListQuery
from fairlead.registry.selectors import Requirement, Selector, parse_fields, parse_labels
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.server.api.routing import parse_bool_param, read_flag

_META_GROUP = "meta.k8s.io"
_NOT_OLDER_THAN = "NotOlderThan"
_VERSION_MATCHES = ("Exact", _NOT_OLDER_THAN, "")
_PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan", "nil")
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_MAX_MANAGER_LENGTH = 128
_OPTION_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
DELETE_OPTIONS = "DeleteOptions"
INCLUDE_METADATA = "Metadata"


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """The options of a watch.

    `version` is the resourceVersion to start from (None: unset or 0). `send_initial_events` starts with synthetic ADDED
    events.
    """

    selector: Selector
    version: int | None
    send_initial_events: bool
    allow_bookmarks: bool
    timeout_seconds: int
    include_object: str = INCLUDE_METADATA
    """The `includeObject` of Table rows."""


def include_object(call: Call) -> str:
    """The parameter `includeObject`: how much of each object a Table row contains."""
    include = call.parameter("includeObject") or INCLUDE_METADATA
    if include not in ("None", INCLUDE_METADATA, "Object"):
        raise BadRequest(f'includeObject must be None, Metadata or Object, not "{include}"')
    return include


def _build_selector(call: Call, kind: Kind, labels: tuple[Requirement, ...]) -> Selector:
    """The selector of a list or watch: its labels, and the parameter `fieldSelector`."""
    allowed = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()), *kind.selectable)
    return Selector(labels, _to_stored_fields(kind, parse_fields(call.parameter("fieldSelector"), allowed)))


def _to_stored_fields(kind: Kind, fields: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """Maps field selectors to the names of the stored fields."""
    if kind.conversion is None:
        return fields
    names = kind.conversion.field_names
    return tuple(replace(field, key=names.get(field.key, field.key)) for field in fields)


def list_query(call: Call, kind: Kind) -> ListQuery:
    if not call.query:
        return ListQuery()
    limit, labels = check_list_options(call)
    selector = _build_selector(call, kind, labels)
    version = call.parameter("resourceVersion")
    match = call.parameter("resourceVersionMatch")
    number = parse_resource_version(version) if version else None
    exact = match == "Exact" or (not match and limit > 0 and bool(number))
    return ListQuery(selector, limit, call.parameter("continue"), number, exact)


def check_list_options(call: Call) -> tuple[int, tuple[Requirement, ...]]:
    """Checks the options of a list, except for resourceVersion and the fields of the fieldSelector. Returns the limit,
    0 if there is none, and the labelSelector."""
    limit, labels = _parse_list_options(call)
    if "fieldSelector" in call.query:
        parse_fields(call.parameter("fieldSelector"), None)
    version, match, token = map(call.parameter, ("resourceVersion", "resourceVersionMatch", "continue"))
    problems = _match_problems(version, match, token)
    if "sendInitialEvents" in call.query:
        problems.append(Problem.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _raise_if_invalid("ListOptions", problems)
    return limit, labels


def _parse_list_options(call: Call) -> tuple[int, tuple[Requirement, ...]]:
    """The limit and the labelSelector of a list or watch. As in Kubernetes, all options are parsed before any is
    checked."""
    parse_integer(call, "timeoutSeconds")
    return max(0, parse_integer(call, "limit")), parse_labels(call.parameter("labelSelector"))


def _match_problems(version: str, match: str, token: str) -> list[Problem]:
    if not match:
        return []
    reasons = []
    if not version:
        reasons.append("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if token:
        reasons.append("resourceVersionMatch is forbidden when continue is provided")
    if match == "Exact" and version == "0":
        reasons.append('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    problems = [Problem.forbidden("resourceVersionMatch", reason) for reason in reasons]
    if match not in _VERSION_MATCHES:
        problems.append(Problem.unsupported("resourceVersionMatch", match, _VERSION_MATCHES))
    return problems


def watch_query(call: Call, kind: Kind) -> WatchQuery:
    version = call.parameter("resourceVersion")
    match = call.parameter("resourceVersionMatch")
    is_set = "sendInitialEvents" in call.query
    marked = parse_bool_param(call.parameter("sendInitialEvents"), present=is_set)
    _, labels = _parse_list_options(call)
    _raise_if_invalid("ListOptions", _watch_problems(match, is_set, call.parameter("continue")))
    bookmarks = read_flag(call, "allowWatchBookmarks")
    return WatchQuery(
        _build_selector(call, kind, labels),
        parse_resource_version(version) if version not in ("", "0") else None,
        send_initial_events=marked or (not is_set and version in ("", "0")),
        allow_bookmarks=bookmarks,
        timeout_seconds=parse_integer(call, "timeoutSeconds"),
        include_object=include_object(call),
    )


def _watch_problems(match: str, sends_initial_events: bool, token: str) -> list[Problem]:
    reasons = []
    if sends_initial_events and match != _NOT_OLDER_THAN:
        reasons.append("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and not sends_initial_events:
        reasons.append("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if token:
        reasons.append("resourceVersionMatch is forbidden when continue is provided")
    problems = [Problem.forbidden("resourceVersionMatch", reason) for reason in reasons]
    if match not in ("", _NOT_OLDER_THAN):
        problems.append(Problem.unsupported("resourceVersionMatch", match, (_NOT_OLDER_THAN,)))
    return problems


def write_options(call: Call, user: User, *, is_apply: bool = False) -> WriteOptions:
    """The options of a create, update or patch. `is_apply` is for server-side apply."""
    if call.query or is_apply:
        _raise_if_invalid(_OPTION_KINDS[call.target.verb], _write_problems(call, is_apply))
    return WriteOptions(
        user,
        call.parameter("fieldManager") or default_field_manager(call),
        dry_run=_note_dry_run(call, call.query.get("dryRun")),
        field_validation=call.parameter("fieldValidation") or "Warn",
        subresource=call.target.subresource,
        is_patch=call.target.verb == "patch",
        is_apply=is_apply,
        force=read_flag(call, "force"),
        warnings=call.warnings,
    )


def _write_problems(call: Call, is_apply: bool) -> list[Problem]:
    field_validation = call.parameter("fieldValidation")
    problems = [*_apply_problems(call, is_apply), *_manager_problems(call.parameter("fieldManager"))]
    problems += _dry_run_problems(call.query.get("dryRun", []))
    if field_validation not in _FIELD_VALIDATIONS:
        problems.append(Problem.unsupported("fieldValidation", field_validation, _FIELD_VALIDATIONS))
    return problems


def default_field_manager(call: Call) -> str:
    """The field manager if the request has none: the program name in its User-Agent."""
    return call.headers.get("user-agent", "").partition("/")[0][:_MAX_MANAGER_LENGTH] or "unknown"


def delete_options(call: Call, body: Any, user: User) -> tuple[DeleteOptions, WriteOptions]:
    """The options of a delete: those of the DeleteOptions in the body, or of the query if there is no body."""
    if body is not None:
        _check_delete_body(body)
    sent: Object = body if body is not None else _delete_query(call)
    preconditions = sent.get("preconditions") or {}
    policy = sent.get("propagationPolicy")
    orphan = sent.get("orphanDependents")
    dry_run = sent.get("dryRun") or []
    problems = list(_dry_run_problems(dry_run))
    if orphan is not None and policy is not None:
        reason = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(Problem.invalid("propagationPolicy", policy, reason))
    if policy is not None and policy not in _PROPAGATION_POLICIES[:3]:
        problems.append(Problem.unsupported("propagationPolicy", policy, _PROPAGATION_POLICIES))
    _raise_if_invalid(DELETE_OPTIONS, problems)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    uid = preconditions.get("uid")
    version = preconditions.get("resourceVersion")
    options = DeleteOptions(uid, version, policy or "", sent.get("gracePeriodSeconds"), orphan is False)
    return options, WriteOptions(user, dry_run=_note_dry_run(call, dry_run), warnings=call.warnings)


def _note_dry_run(call: Call, values: Sequence[str] | None) -> bool:
    """Whether it is a dry run, which the audit event then says."""
    if not values:
        return False
    call.annotations[DRY_RUN_ANNOTATION] = "All"  # the only value that is valid
    return True


def _delete_query(call: Call) -> Object:
    """The options of a delete without a body."""
    found: Object = {"dryRun": call.query.get("dryRun")}
    if "propagationPolicy" in call.query:
        found["propagationPolicy"] = call.parameter("propagationPolicy")
    if "orphanDependents" in call.query:
        found["orphanDependents"] = parse_bool_param(call.parameter("orphanDependents"))
    if "gracePeriodSeconds" in call.query:
        found["gracePeriodSeconds"] = parse_integer(call, "gracePeriodSeconds")
    found["preconditions"] = {name: value for name in _PRECONDITIONS if (value := call.parameter(name))}
    return found


_PRECONDITIONS = ("uid", "resourceVersion")
_DELETE_TYPES: dict[str, type | tuple[type, ...]] = {
    "gracePeriodSeconds": int,
    "propagationPolicy": str,
    "orphanDependents": bool,
    "preconditions": dict,
    "dryRun": list,
}


def _check_delete_body(body: Any) -> None:
    if not isinstance(body, dict):
        raise BadRequest("the body of a delete must be a DeleteOptions object, or empty")
    kind = body.get("kind", DELETE_OPTIONS)
    if kind != DELETE_OPTIONS:
        raise BadRequest(f"the body of a delete must be of kind {DELETE_OPTIONS}, not {quote_value(kind)}")
    for name, expected in _DELETE_TYPES.items():
        value = body.get(name)
        if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
            raise BadRequest(f"{DELETE_OPTIONS}: {name} is of the wrong type")
    if len(body.get("dryRun") or ()) > limits.ITEMS:
        raise BadRequest(f"{DELETE_OPTIONS}: dryRun has too many entries; {limits.ITEMS} is the limit")
    if not all(isinstance(value, str) for value in body.get("dryRun") or ()):
        raise BadRequest(f"{DELETE_OPTIONS}: dryRun must be a list of strings")
    for name, value in (body.get("preconditions") or {}).items():
        if value is not None and not isinstance(value, str):
            raise BadRequest(f"{DELETE_OPTIONS}: preconditions.{truncate(name)} must be a string")
        if value is not None and len(value) > limits.NAME:
            problem = f"is too long; {limits.NAME} characters is the limit"
            raise BadRequest(f"{DELETE_OPTIONS}: preconditions.{truncate(name)} {problem}")


def _dry_run_problems(values: Any) -> list[Problem]:
    if all(value == "All" for value in values):
        return []
    return [Problem.unsupported("dryRun", list(values), ("All",))]


def _manager_problems(manager: str) -> list[Problem]:
    if len(manager) > _MAX_MANAGER_LENGTH:
        return [Problem.too_long("fieldManager", _MAX_MANAGER_LENGTH)]
    for position, character in enumerate(manager):
        if not character.isprintable():
            reason = f"invalid character U+{ord(character):04X} (at position {position})"
            return [Problem.invalid("fieldManager", manager, reason)]
    return []


def _apply_problems(call: Call, is_apply: bool) -> list[Problem]:
    """An apply needs a field manager, which will own the fields. Only an apply can force conflicts."""
    if is_apply and not call.parameter("fieldManager"):
        return [Problem.required("fieldManager", "is required for apply patch")]
    if call.target.verb == "patch" and not is_apply and "force" in call.query:
        return [Problem.forbidden("force", "may not be specified for non-apply patch")]
    return []


def _raise_if_invalid(kind: str, problems: list[Problem]) -> None:
    if problems:
        raise Invalid.of(kind, _META_GROUP, "", problems)


def parse_integer(call: Call, name: str) -> int:
    """An integer query parameter; 0 if it is missing."""
    if name not in call.query:
        return 0
    text = call.parameter(name)
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise BadRequest(f"{name} must be a whole number, not {quote_value(text)}")
    return int(text)


def parse_resource_version(text: str) -> int:
    """Parses a resourceVersion."""
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        raise BadRequest(
            f"invalid resource version: resourceVersion: Invalid value: {quote_value(text)}: "
            "must be a value that this server has returned"
        )
    return int(text)
