"""Parses query parameters into options. Error messages match those of Kubernetes."""

import re
from dataclasses import dataclass, replace
from typing import Any

from fairlead.core.call import Call
from fairlead.core.errors import BadRequest, Invalid, Problem, cut, shown
from fairlead.core.user import User
from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.list import ListQuery
from fairlead.registry.selectors import EVERYTHING, Requirement, Selection, parse_fields, parse_labels
from fairlead.registry.write_options import Deleting, Writing
from fairlead.server.api.routing import truthy

_META_GROUP = "meta.k8s.io"
_MATCHES = ("Exact", "NotOlderThan", "")
_POLICIES = ("Foreground", "Background", "Orphan", "nil")
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_MANAGER_LENGTH = 128
_OPTION_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
DELETE_OPTIONS = "DeleteOptions"
METADATA = "Metadata"


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """The options of a watch.

    `version` is the resourceVersion to start from (None: unset or 0). `send_initial_events` starts with synthetic ADDED
    events, and `initial_events_bookmark` ends them with an annotated bookmark.
    """

    selection: Selection
    version: int | None
    existing: bool
    marked: bool
    bookmarks: bool
    timeout: int
    include: str = METADATA
    """The `includeObject` of Table rows."""


def include_object(call: Call) -> str:
    """The parameter `includeObject`: how much of each object a Table row contains."""
    include = call.parameter("includeObject") or METADATA
    if include not in ("None", METADATA, "Object"):
        raise BadRequest(f'includeObject must be None, Metadata or Object, not "{include}"')
    return include


def selection(call: Call, kind: Kind) -> Selection:
    """The parameters `labelSelector` and `fieldSelector`."""
    if not call.query:
        return EVERYTHING
    allowed = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()), *kind.selectable)
    labels, fields = call.parameter("labelSelector"), call.parameter("fieldSelector")
    return Selection(parse_labels(labels), _stored_names(kind, parse_fields(fields, allowed)))


def _stored_names(kind: Kind, fields: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """Maps field selectors to the names of the stored fields."""
    if kind.form is None:
        return fields
    names = kind.form.fields
    return tuple(replace(field, key=names.get(field.key, field.key)) for field in fields)


def list_query(call: Call, kind: Kind) -> ListQuery:
    if not call.query:
        return ListQuery()
    version, match = call.parameter("resourceVersion"), call.parameter("resourceVersionMatch")
    if truthy(call.parameter("sendInitialEvents"), present="sendInitialEvents" in call.query):
        _refuse("ListOptions", [Problem.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")])
    _refuse("ListOptions", _match_problems(version, match))
    limit = max(0, integer(call, "limit"))
    number = revision(version) if version else None
    exact = match == "Exact" or (not match and limit > 0 and bool(number))
    return ListQuery(selection(call, kind), limit, call.parameter("continue"), number, exact)


def _match_problems(version: str, match: str) -> list[Problem]:
    if match not in _MATCHES:
        return [Problem.unsupported("resourceVersionMatch", match, _MATCHES)]
    if match and not version:
        reason = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        return [Problem.forbidden("resourceVersionMatch", reason)]
    if match == "Exact" and version == "0":
        return [
            Problem.forbidden(
                "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            )
        ]
    return []


def watch_query(call: Call, kind: Kind) -> WatchQuery:
    version, match = call.parameter("resourceVersion"), call.parameter("resourceVersionMatch")
    is_set = "sendInitialEvents" in call.query
    marked = truthy(call.parameter("sendInitialEvents"), present=is_set)
    _refuse("ListOptions", _initial_problems(match, is_set))
    bookmarks = truthy(call.parameter("allowWatchBookmarks"), present="allowWatchBookmarks" in call.query)
    return WatchQuery(
        selection(call, kind),
        revision(version) if version not in ("", "0") else None,
        existing=marked or (not is_set and version in ("", "0")),
        marked=marked,
        bookmarks=bookmarks,
        timeout=integer(call, "timeoutSeconds"),
        include=include_object(call),
    )


def _initial_problems(match: str, asked: bool) -> list[Problem]:
    if not asked:
        reason = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        return [Problem.forbidden("resourceVersionMatch", reason)] if match else []
    if match == "NotOlderThan":
        return []
    reason = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    problems = [Problem.forbidden("resourceVersionMatch", reason)]
    if match:
        problems.append(Problem.unsupported("resourceVersionMatch", match, ("NotOlderThan",)))
    return problems


def writing(call: Call, user: User, *, applying: bool = False) -> Writing:
    """The options of a create, update or patch. `is_apply` is for server-side apply."""
    if call.query or applying:
        _refuse(_OPTION_KINDS[call.target.verb], _writing_problems(call, applying))
    return Writing(
        user,
        call.parameter("fieldManager") or agent_name(call),
        dry_run="dryRun" in call.query,
        field_validation=call.parameter("fieldValidation") or "Warn",
        subresource=call.target.subresource,
        patching=call.target.verb == "patch",
        applying=applying,
        force=truthy(call.parameter("force"), present="force" in call.query),
        warnings=call.warnings,
    )


def _writing_problems(call: Call, applying: bool) -> list[Problem]:
    field_validation = call.parameter("fieldValidation")
    problems = [*_apply_problems(call, applying), *_manager_problems(call.parameter("fieldManager"))]
    problems += _dry_run_problems(call.query.get("dryRun", []))
    if field_validation not in _FIELD_VALIDATIONS:
        problems.append(Problem.unsupported("fieldValidation", field_validation, _FIELD_VALIDATIONS))
    return problems


def agent_name(call: Call) -> str:
    """The field manager if the request has none: the program name in its User-Agent."""
    return call.headers.get("user-agent", "").partition("/")[0][:_MANAGER_LENGTH] or "unknown"


def deleting(call: Call, body: Any, user: User) -> tuple[Deleting, Writing]:
    """The options of a delete. Query parameters take precedence over the DeleteOptions in the body."""
    if body is not None:
        _check_delete_body(body)
    sent = body or {}
    preconditions = sent.get("preconditions") or {}
    policy = call.parameter("propagationPolicy") or sent.get("propagationPolicy") or ""
    dry_run = call.query.get("dryRun") or sent.get("dryRun") or []
    if truthy(call.parameter("orphanDependents"), present="orphanDependents" in call.query) or sent.get(
        "orphanDependents"
    ):
        policy = policy or "Orphan"
    problems = list(_dry_run_problems(dry_run))
    if policy and policy not in _POLICIES[:3]:
        problems.append(Problem.unsupported("propagationPolicy", policy, _POLICIES))
    _refuse(DELETE_OPTIONS, problems)
    grace = (
        integer(call, "gracePeriodSeconds") if "gracePeriodSeconds" in call.query else sent.get("gracePeriodSeconds")
    )
    options = Deleting(preconditions.get("uid") or "", preconditions.get("resourceVersion") or "", policy, grace)
    return options, Writing(user, dry_run="All" in dry_run, warnings=call.warnings)


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
        raise BadRequest(f"the body of a delete must be of kind {DELETE_OPTIONS}, not {shown(kind)}")
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
            raise BadRequest(f"{DELETE_OPTIONS}: preconditions.{cut(name)} must be a string")
        if value is not None and len(value) > limits.NAME:
            problem = f"is too long; {limits.NAME} characters is the limit"
            raise BadRequest(f"{DELETE_OPTIONS}: preconditions.{cut(name)} {problem}")


def _dry_run_problems(values: Any) -> list[Problem]:
    if all(value == "All" for value in values):
        return []
    return [Problem.unsupported("dryRun", list(values), ("All",))]


def _manager_problems(manager: str) -> list[Problem]:
    if len(manager) > _MANAGER_LENGTH:
        return [Problem.too_long("fieldManager", _MANAGER_LENGTH)]
    if not manager.isprintable():
        return [Problem.invalid("fieldManager", manager, "should only contain printable characters")]
    return []


def _apply_problems(call: Call, applying: bool) -> list[Problem]:
    """An apply needs a field manager, which will own the fields. Only an apply can force conflicts."""
    if applying and not call.parameter("fieldManager"):
        return [Problem.required("fieldManager", "is required for apply patch")]
    if call.target.verb == "patch" and not applying and "force" in call.query:
        return [Problem.forbidden("force", "may not be specified for non-apply patch")]
    return []


def _refuse(kind: str, problems: list[Problem]) -> None:
    if problems:
        raise Invalid.of(kind, _META_GROUP, "", problems)


def integer(call: Call, name: str) -> int:
    """An integer query parameter; 0 if it is missing."""
    text = call.parameter(name)
    if not text:
        return 0
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise BadRequest(f"{name} must be a whole number, not {shown(text)}")
    return int(text)


def revision(text: str) -> int:
    """Parses a resourceVersion."""
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        raise BadRequest(
            f"invalid resource version: resourceVersion: Invalid value: {shown(text)}: "
            "must be a value that this server has returned"
        )
    return int(text)
