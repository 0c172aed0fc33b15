"""Checks and prunes the body of a write, before any rule of the kind.

A body whose kind, apiVersion, name or namespace does not match the URL is rejected with 400. Unknown and duplicate
fields are dropped, dropped with a warning, or rejected, according to `fieldValidation`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.core.errors import MAX_PROBLEMS, ApiError, BadRequest, Invalid, Problem, cut
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER, User
from fairlead.registry.kind import Kind
from fairlead.registry.metadata import check_shape, undecodable
from fairlead.registry.validate import Findings, Validator
from fairlead.registry.validation_walk import TOO_LARGE
from fairlead.registry.write_options import Writing


def as_object(body: Any, kind: Kind) -> Object:
    """The decoded body, if its apiVersion and kind are those of `kind`."""
    if not isinstance(body, dict):
        found = "nothing" if body is None else "a list" if isinstance(body, list) else "a single value"
        raise _unrecognized(kind, f"the body is {found} where an object is expected")
    sent_kind, sent_version = body.get("kind"), body.get("apiVersion")
    if sent_kind == kind.name and sent_version == kind.api_version:
        return body
    if not sent_kind and kind.builtin:
        body["kind"] = sent_kind = kind.name
    if not sent_version and kind.builtin:
        body["apiVersion"] = sent_version = kind.api_version
    if not isinstance(sent_kind, str) or not sent_kind:
        raise _unrecognized(kind, f"Object 'Kind' is missing; set `kind: {kind.name}`")
    if not isinstance(sent_version, str) or not sent_version:
        raise _unrecognized(kind, f"Object 'apiVersion' is missing; set `apiVersion: {kind.api_version}`")
    if sent_version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({cut(sent_version)}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if sent_kind != kind.name:
        raise _other_kind(body, kind)
    return body


def _unrecognized(kind: Kind, why: str) -> BadRequest:
    return BadRequest(f"the object provided is unrecognized (must be of type {kind.name}): {why}")


def _other_kind(body: Object, kind: Kind) -> ApiError:
    if kind.builtin:
        return _unrecognized(kind, f'it is of kind "{cut(body["kind"])}"')
    meta = body.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    name = cut(name) if isinstance(name, str) else ""
    problem = Problem.invalid("kind", body["kind"], f"must be {kind.name}")
    return Invalid.of(cut(body["kind"]), kind.group, name, [problem])


def settle_place(obj: Object, kind: Kind, namespace: str, name: str = "") -> None:
    """Compares the body's name and namespace with the URL's. A missing namespace is taken from the URL."""
    meta = metadata(obj)
    if name and not meta.get("name"):
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name and meta["name"] != name:
        raise BadRequest(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if not namespace:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = namespace
    elif meta["namespace"] != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")


@dataclass(frozen=True, slots=True)
class Sent:
    """What is needed to check a body besides the body: its duplicate fields, and the stored object."""

    duplicates: Sequence[str] = ()
    before: Object | None = None


def shape(obj: Object, kind: Kind, validator: Validator, writing: Writing, sent: Sent) -> list[Problem]:
    """Prunes the object, handles unknown and duplicate fields, and returns the schema problems."""
    unknown, duplicates = check_shape(obj, kind, sent.before), sent.duplicates
    findings = validator.examine(obj, sent.before)
    if not (unknown or findings.unknown or findings.problems or duplicates):
        return []
    warnings = [f'duplicate field "{path}"' for path in duplicates]
    warnings += [f'unknown field "{path}"' for path in (*unknown, *findings.unknown)]
    if warnings and writing.field_validation == "Strict":
        listed = ", ".join(warnings[:MAX_PROBLEMS])
        raise BadRequest(undecodable(kind, f"strict decoding error: {listed}"))
    if writing.field_validation == "Warn":
        writing.tell(warnings)
    problems = counting(findings.problems, writing.user)
    wrong = next((each for each in problems if each.reason not in TOO_LARGE), None)
    if kind.builtin and wrong is not None:
        raise BadRequest(undecodable(kind, str(wrong)))
    return [*problems, *_too_dangerous_to_drop(kind, findings)]


def counting(problems: list[Problem], user: User) -> list[Problem]:
    """The problems that lead to rejection. The server itself may exceed limits: it writes what it has observed
    elsewhere, and a status that cannot be written would help no user."""
    return [each for each in problems if each.reason not in TOO_LARGE] if user == CONTROLLER else problems


def _too_dangerous_to_drop(kind: Kind, findings: Findings) -> Iterator[Problem]:
    """Problems for unknown fields below `Kind.reject_unknown_under`: dropping a misspelt restriction would lift it."""
    if findings.has_more_unknown:
        for path in kind.strict:
            yield Problem.forbidden(path, f"the object has more than {MAX_PROBLEMS} unknown fields; remove them")
    for path in findings.unknown:
        if any(path.startswith(f"{strict}.") for strict in kind.strict):
            yield Problem.forbidden(path, "unknown field; without it, what it was meant to limit would be unlimited")


def blamed(error: BadRequest, writing: Writing) -> ApiError:
    """For a patch, a result that cannot be decoded is a 422 instead of a 400: the patch itself was readable."""
    if not writing.patching:
        return error
    return Invalid.of("", "", "", [Problem("patch", "FieldValueInvalid", f"Invalid value: {error}")])
