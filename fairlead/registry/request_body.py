"""Checks and prunes the body of a write, before any rule of the kind.

A body whose kind, apiVersion, name or namespace does not match the URL is rejected with 400. Unknown and duplicate
fields are dropped, dropped with a warning, or rejected, according to `fieldValidation`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from fairlead.core.errors import MAX_PROBLEMS, ApiError, BadRequest, Invalid, Problem, truncate
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry import write_rules
from fairlead.registry.kind import Kind
from fairlead.registry.object_metadata import (
    check_types,
    decode_error_message,
    preserve_server_fields,
    remove_duplicate_owners,
    update_problems,
)
from fairlead.registry.object_metadata import problems as metadata_problems
from fairlead.registry.validate import LIMIT_REASONS, ValidationResult, Validator
from fairlead.registry.write_options import WriteOptions

_DECODABLE_REASONS = LIMIT_REASONS | {"FieldValueNotSupported"}
"""Problems with values that a Go type can hold. Built-in kinds report others as decoding errors."""


def check_type_meta(body: Any, kind: Kind, *, is_patch: bool = False) -> Object:
    """The decoded body, if its apiVersion and kind are those of `kind`. `is_patch`: it is the result of a patch."""
    if not isinstance(body, dict):
        found = "nothing" if body is None else "a list" if isinstance(body, list) else "a single value"
        raise _unrecognized(kind, f"the body is {found} where an object is expected")
    sent_kind = body.get("kind")
    sent_version = body.get("apiVersion")
    if sent_kind == kind.name and sent_version == kind.api_version:
        return body
    if sent_kind in (None, "") and kind.builtin:
        body["kind"] = sent_kind = kind.name
    if sent_version in (None, "") and kind.builtin:
        body["apiVersion"] = sent_version = kind.api_version
    if not isinstance(sent_kind, str) or not sent_kind:
        raise _unrecognized(kind, f"Object 'Kind' is missing; set `kind: {kind.name}`")
    if not isinstance(sent_version, str) or not sent_version:
        raise _unrecognized(kind, f"Object 'apiVersion' is missing; set `apiVersion: {kind.api_version}`")
    if sent_version != kind.api_version and (kind.builtin or not is_patch):
        raise BadRequest(
            f"the API version in the data ({truncate(sent_version)}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if (sent_kind, sent_version) != (kind.name, kind.api_version):
        raise _wrong_type(body, kind)
    return body


def check_new_type(body: Any, kind: Kind, options: WriteOptions) -> Object:
    """`check_type_meta` for a new object. As in Kubernetes, metadata that cannot be decoded precedes another type."""
    try:
        return check_type_meta(body, kind)
    except _OtherType:
        options.add_warnings(_unknown_field_warnings(check_types(body, kind), (), kind, options))
        raise


def decode_update(
    proposed: Any, kind: Kind, validator: Validator, key: tuple[str, str], options: WriteOptions, context: "BodyContext"
) -> tuple[Object, list[Problem]]:
    """The new object from a PUT or a patch, and its schema problems. `key` is its namespace and name."""
    if options.is_patch and kind.builtin and isinstance(proposed, dict) and proposed.get("apiVersion") in (None, ""):
        raise BadRequest(_no_name(key[1]))  # Kubernetes decodes nothing without an apiVersion
    try:
        new = check_type_meta(proposed, kind, is_patch=options.is_patch)
        problems = prune_and_validate(new, kind, validator, options, context)
    except BadRequest as error:
        if options.is_patch and _lacks_only_version(proposed):
            _check_metadata(proposed, kind, key, options, context.old or {})  # as in Kubernetes, this precedes
        raise as_patch_error(error, options) from None
    except _OtherType as error:
        raise _with_metadata_problems(error, proposed, kind, key, options, context.old or {}) from None
    check_name_and_namespace(new, kind, *key)
    return new, problems


def _with_metadata_problems(
    error: Invalid, obj: Object, kind: Kind, key: tuple[str, str], options: WriteOptions, old: Object
) -> Invalid:
    """The error about another type with the problems of the metadata, as in Kubernetes. Raises what precedes it."""
    _check_metadata(obj, kind, key, options, old)
    write_rules.check_uid_and_version(kind, old, obj, options)
    preserve_server_fields(old, obj)
    details = error.details
    found = [*details.problems, *metadata_problems(obj, kind), *update_problems(old, obj)]
    return Invalid.of(details.kind, details.group, details.name, found)


def _lacks_only_version(proposed: Any) -> bool:
    """Whether it is an object with a kind, but without an apiVersion."""
    return isinstance(proposed, dict) and isinstance(proposed.get("kind"), str) and not proposed.get("apiVersion")


def _check_metadata(obj: Object, kind: Kind, key: tuple[str, str], options: WriteOptions, old: Object) -> None:
    try:
        check_types(obj, kind, old)
    except BadRequest as undecodable:
        raise as_patch_error(undecodable, options) from None
    check_name_and_namespace(obj, kind, *key)


def _unrecognized(kind: Kind, reason: str) -> BadRequest:
    return BadRequest(f"the object provided is unrecognized (must be of type {kind.name}): {reason}")


def _wrong_type(body: Object, kind: Kind) -> ApiError:
    """The error for a body of another kind, or with another apiVersion."""
    sent_kind = truncate(body["kind"])
    sent_version = truncate(body["apiVersion"])
    if kind.builtin:
        return _unrecognized(kind, f'it is of kind "{sent_kind}"')
    meta = body.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    expected = (("kind", sent_kind, kind.name), ("apiVersion", sent_version, kind.api_version))
    problems = [Problem.invalid(field, sent, f"must be {known}") for field, sent, known in expected if sent != known]
    group = sent_version.partition("/")[0] if sent_version.count("/") == 1 else ""
    error = Invalid.of(sent_kind, group, truncate(name) if isinstance(name, str) else "", problems)
    return _OtherType(error.message, error.details)


class _OtherType(Invalid):
    """An object of another kind or version, of a kind that is not built in."""


def _no_name(name: str) -> str:
    return f"the name of the object ({name} based on URL) was undeterminable: name must be provided"


def check_name_and_namespace(obj: Object, kind: Kind, namespace: str, name: str = "") -> None:
    """Compares the body's name and namespace with the URL's. A missing namespace is taken from the URL."""
    meta = metadata(obj)
    if name and not meta.get("name"):
        raise BadRequest(_no_name(name))
    if name and meta["name"] != name:
        raise BadRequest(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if not namespace:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = namespace
    elif meta["namespace"] != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")


class BodyContext(Struct, frozen=True):
    """What is needed to check a body besides the body: its duplicate fields, and the stored object."""

    duplicate_fields: Sequence[str] = ()
    old: Object | None = None


def prune_and_validate(
    obj: Object, kind: Kind, validator: Validator, options: WriteOptions, context: BodyContext
) -> list[Problem]:
    """Prunes the object, handles unknown and duplicate fields, and returns the schema problems."""
    unknown, duplicates = check_types(obj, kind, context.old), context.duplicate_fields
    if "ownerReferences" in obj["metadata"]:
        options.add_warnings(remove_duplicate_owners(obj))
    findings = validator.validate(obj, context.old, reject_nulls=options.is_apply and not kind.builtin)
    if not (unknown or findings.unknown_fields or findings.problems or duplicates):
        return []
    warnings = _unknown_field_warnings((*unknown, *findings.unknown_fields), duplicates, kind, options)
    problems = enforced_problems(findings.problems, options.user)
    wrong = next((each for each in problems if each.reason not in _DECODABLE_REASONS), None)
    if kind.builtin and wrong is not None:
        raise BadRequest(decode_error_message(kind, str(wrong)))
    options.add_warnings(warnings)
    return [*problems, *_unknown_field_problems(kind, findings)]


def _unknown_field_warnings(
    unknown: Sequence[str], duplicates: Sequence[str], kind: Kind, options: WriteOptions
) -> list[str]:
    """The warnings about unknown and duplicate fields, if the client wants any. With `Strict` they are an error."""
    warnings = [f'duplicate field "{path}"' for path in duplicates]
    warnings += [f'unknown field "{path}"' for path in unknown]
    if warnings and options.field_validation == "Strict":
        listed = ", ".join(warnings[:MAX_PROBLEMS])
        raise BadRequest(decode_error_message(kind, f"strict decoding error: {listed}"))
    return warnings if options.field_validation == "Warn" else []


def enforced_problems(problems: list[Problem], user: User) -> list[Problem]:
    """The problems that lead to rejection. The server itself may exceed limits: it writes what it has observed
    elsewhere, and a status that cannot be written would help no user."""
    return [each for each in problems if each.reason not in LIMIT_REASONS] if user == CONTROLLER_USER else problems


def _unknown_field_problems(kind: Kind, result: ValidationResult) -> Iterator[Problem]:
    """Problems for unknown fields below `Kind.reject_unknown_under`: dropping a misspelt restriction would lift it."""
    if result.has_more_unknown_fields:
        for path in kind.reject_unknown_under:
            yield Problem.forbidden(path, f"the object has more than {MAX_PROBLEMS} unknown fields; remove them")
    for path in result.unknown_fields:
        if any(path.startswith(f"{strict}.") for strict in kind.reject_unknown_under):
            yield Problem.forbidden(path, "unknown field; without it, what it was meant to limit would be unlimited")


def as_patch_error(error: BadRequest, options: WriteOptions) -> ApiError:
    """For a patch, a result that cannot be decoded is a 422 instead of a 400: the patch itself was readable."""
    if not options.is_patch:
        return error
    return Invalid.of("", "", "", [Problem("patch", "FieldValueInvalid", f"Invalid value: {error}")])
