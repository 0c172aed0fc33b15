"""Object metadata: its schema, the fields that only the server sets, and its validation. The same for every kind.

`registry/resource.py` calls these functions around each write.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from os import urandom
from typing import Any

import orjson

from fairlead.core.errors import MAX_PROBLEMS, ApiError, BadRequest, Invalid, Problem, quote_value, truncate
from fairlead.core.objects import Object, metadata
from fairlead.core.yaml import to_json_number
from fairlead.registry import limits
from fairlead.registry import schema as openapi
from fairlead.registry.kind import Kind
from fairlead.registry.names import (
    MAX_LABEL_LENGTH,
    MAX_SUBDOMAIN_LENGTH,
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    path_segment_errors,
    qualified_name_errors,
)
from fairlead.registry.quota.charged_user import CHARGED_USER, preserve_charged_user, set_charged_user
from fairlead.registry.validate import LIMIT_REASONS, Validator

MAX_ANNOTATIONS_BYTES = limits.ANNOTATIONS_BYTES
MAX_GENERATED_NAME_LENGTH = 63
MAX_PATH_SEGMENT_LENGTH = 1_024
SUFFIX_LENGTH = 5
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes, as in Kubernetes: suffixes spell no words and are easy to read."""


def _string(description: str) -> openapi.Schema:
    return openapi.string(description, max_length=limits.METADATA_TEXT)


METADATA = openapi.obj(
    "Standard object metadata.",
    name=_string("Name, unique within its namespace and kind. Cannot be updated."),
    generateName=_string("Prefix of the name that the server generates if no name is set."),
    namespace=_string("Namespace within which the name is unique. Cannot be updated."),
    selfLink=_string("Deprecated: no longer populated."),
    uid=_string("Identity in time and space, set by the server."),
    resourceVersion=_string("Opaque version of this object, for optimistic concurrency and watches."),
    generation=openapi.integer("Sequence number of the desired state, set by the server."),
    creationTimestamp=openapi.timestamp("When the object was created, set by the server."),
    deletionTimestamp=openapi.timestamp("When deletion was requested, set by the server."),
    deletionGracePeriodSeconds=openapi.integer("Seconds allowed for graceful termination, set by the server."),
    labels=openapi.mapping(
        openapi.nullable(_string("Value of a label.")),
        "Labels to organize and select objects by.",
        max_properties=limits.LABELS,
    ),
    annotations=openapi.mapping(
        openapi.nullable(openapi.string("Value of an annotation.", max_length=limits.ANNOTATION)),
        "Unstructured notes, not selectable.",
        max_properties=limits.ANNOTATIONS,
    ),
    finalizers=openapi.array_set(
        _string("Name of a finalizer."), "Must be empty before the object is removed.", max_items=limits.FINALIZERS
    ),
    ownerReferences=openapi.array_map(
        ("uid",),
        openapi.obj(
            "An object that this one depends on.",
            apiVersion=_string("API version of the owner."),
            kind=_string("Kind of the owner."),
            name=_string("Name of the owner."),
            uid=_string("UID of the owner."),
            controller=openapi.boolean("Whether this owner is the managing controller."),
            blockOwnerDeletion=openapi.boolean("Whether foreground deletion of the owner waits for this object."),
        ),
        "Objects that this one depends on; it is garbage collected when all of them are gone.",
        max_items=limits.OWNER_REFERENCES,
    ),
    managedFields=openapi.array(
        openapi.obj(
            "A workflow and the fields it manages.",
            manager=_string("Name of the workflow that manages the fields."),
            operation=_string("Apply or Update."),
            apiVersion=_string("Version of the resource that the field set applies to."),
            time=openapi.timestamp("When the entry last changed."),
            fieldsType=_string("FieldsV1, the only form."),
            fieldsV1=openapi.open_object("The set of fields."),
            subresource=_string("Subresource used, empty for the main resource."),
        ),
        "Which workflow manages which fields.",
        max_items=limits.MANAGED_FIELDS,
    ),
)

_validator = Validator(METADATA, limit_freeform=False, zero_nulls=True)
_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_SERVER_FIELD_SET = frozenset(_SERVER_FIELDS)
_IMMUTABLE_FIELDS = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHECKED_FIELDS = ("uid", "deletionGracePeriodSeconds")
"""Those of the immutable fields that an update may not change even if they are set already."""


def check_types(obj: Object, kind: Kind, before: Object | None = None) -> list[str]:
    """Rejects metadata with wrong types or beyond the limits, and removes unknown fields. Returns their paths.

    `before` is the stored object.
    """
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    found = obj["metadata"]
    if not isinstance(found, dict):
        raise BadRequest(decode_error_message(kind, "metadata must be an object"))
    if type(found.get("generation")) is float and not kind.builtin:
        found["generation"] = to_json_number(found["generation"])
    findings = _validator.validate(found, None if before is None else before["metadata"])
    if findings.problems:
        raise _type_error(found, kind, [replace(each, field=f"metadata.{each.field}") for each in findings.problems])
    for name in ("labels", "annotations"):
        values = found.get(name)
        if values and None in values.values():
            for key, value in values.items():
                if value is None:
                    values[key] = ""
    return [f"metadata.{path}" for path in findings.unknown_fields] if findings.unknown_fields else []


def _type_error(found: Object, kind: Kind, problems: list[Problem]) -> ApiError:
    for problem in problems:
        if problem.reason not in LIMIT_REASONS:
            return BadRequest(decode_error_message(kind, str(problem)))
    return Invalid.of(kind.name, kind.stored_resource[0], str(found.get("name") or "")[:MAX_SUBDOMAIN_LENGTH], problems)


def decode_error_message(kind: Kind, reason: str) -> str:
    """The message for a body that cannot be decoded as an object of the kind."""
    return f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {reason}'


def init_metadata(obj: Object, now: str, kind: Kind) -> None:
    """Initializes the metadata of a new object: the server-set fields are set, whatever the body contains."""
    meta = obj["metadata"]
    generation = 1 if kind.tracks_generation else meta.get("generation")
    set_charged_user(meta, "")
    if not _SERVER_FIELD_SET.isdisjoint(meta):
        for name in _SERVER_FIELDS:
            meta.pop(name, None)
    meta["uid"] = new_uid()
    meta["creationTimestamp"] = now
    if generation:  # a kind that does not count it keeps what the client sent
        meta["generation"] = generation
    drop_empty(meta)


def new_uid() -> str:
    """A random UUID, version 4: 120 random bits, and the digits of the version and of the variant."""
    digits = urandom(15).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:18]}-{digits[18:]}"


def preserve_server_fields(old: Object, new: Object) -> None:
    """On update, preserves the server-set fields of the stored object. `update_problems` reports an attempt to change
    the immutable ones."""
    before, after = old["metadata"], new["metadata"]
    if orjson.dumps(_server_fields(before)) != orjson.dumps(_server_fields(after)):
        for name in _SERVER_FIELDS:
            if name in before and not (name in _CHECKED_FIELDS and after.get(name)):
                after[name] = before[name]
            elif name not in _IMMUTABLE_FIELDS:
                after.pop(name, None)
    after["resourceVersion"] = before["resourceVersion"]
    preserve_charged_user(before, after)
    drop_empty(after)


def _server_fields(meta: Object) -> list[Any]:
    return [*map(meta.get, _SERVER_FIELDS)]


def drop_empty(meta: Object) -> None:
    """Removes empty collections and strings, as Kubernetes does."""
    if all(meta.values()):
        return
    for name in [name for name, value in meta.items() if not value and name in _OMITTED_WHEN_EMPTY]:
        del meta[name]


_OMITTED_WHEN_EMPTY = frozenset(
    {"labels", "annotations", "finalizers", "ownerReferences", "generateName", "selfLink", "namespace"}
)


def generate_name(prefix: str) -> str:
    """The prefix, truncated if needed, and five random characters."""
    suffix = "".join(random.choices(_SUFFIX_LETTERS, k=SUFFIX_LENGTH))
    return prefix[: MAX_GENERATED_NAME_LENGTH - SUFFIX_LENGTH] + suffix


def problems(obj: Object, kind: Kind) -> Iterator[Problem]:
    """All problems with an object's metadata."""
    meta = obj["metadata"]
    yield from _name_problems(meta, kind)
    if meta.get("generation", 0) < 0:
        yield Problem.invalid("metadata.generation", meta["generation"], "must be greater than or equal to 0")
    if labels := meta.get("labels"):
        yield from label_problems(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        yield from _annotation_problems(annotations)
    if finalizers := meta.get("finalizers"):
        yield from _finalizer_problems(finalizers, kind)
    if owners := meta.get("ownerReferences"):
        yield from _owner_problems(owners)


def update_problems(old: Object, new: Object) -> Iterator[Problem]:
    """Problems with an update of metadata."""
    before, after = old["metadata"], new["metadata"]
    if [*map(after.get, _IMMUTABLE_FIELDS)] != [*map(before.get, _IMMUTABLE_FIELDS)]:
        for name in _IMMUTABLE_FIELDS:
            if after.get(name) == before.get(name):
                continue
            yield Problem.invalid(f"metadata.{name}", after.get(name), "field is immutable")
    if "deletionTimestamp" not in before:
        return
    known = frozenset(before.get("finalizers") or ())
    added = [each for each in after.get("finalizers") or () if each not in known]
    if added:
        listed = ", ".join(quote_value(each) for each in added[:MAX_PROBLEMS])
        yield Problem.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )


def _name_problems(meta: Object, kind: Kind) -> Iterator[Problem]:
    name = meta.get("name")
    prefix = meta.get("generateName")
    faults = _name_check(kind)
    if prefix:
        # A trailing dash is valid, because a suffix follows.
        for fault in faults(f"{prefix[:-1]}a" if prefix.endswith("-") else prefix):
            yield Problem.invalid("metadata.generateName", prefix, fault)
    if not name:
        yield Problem.required("metadata.name", "name or generateName is required")
        return
    for fault in faults(name):
        yield Problem.invalid("metadata.name", name, fault)


def _name_check(kind: Kind) -> Callable[[str], Iterable[str]]:
    if kind.name_is_path_segment:
        return _segment_name_errors
    return dns_label_errors if kind.name_is_label else dns_subdomain_errors


def _segment_name_errors(name: str) -> Iterator[str]:
    """Errors of a name that must be a URL path segment: also its length, and characters that a URL cannot carry."""
    yield from path_segment_errors(name)
    if len(name) > MAX_PATH_SEGMENT_LENGTH:
        yield f"must be no more than {MAX_PATH_SEGMENT_LENGTH} characters"
    if "\x00" in name:
        yield "may not contain a NUL byte"


def label_problems(labels: Object, path: str) -> Iterator[Problem]:
    """Problems with a map of labels at any path."""
    for key, value in labels.items():
        if len(key) + len(value) <= _MAX_LABEL_PAIR_LENGTH and _is_valid_label(key, value):
            continue
        for fault in qualified_name_errors(key):
            yield Problem.invalid(path, key, fault)
        for fault in label_value_errors(value):
            yield Problem.invalid(path, value, fault)


_MAX_LABEL_PAIR_LENGTH = MAX_SUBDOMAIN_LENGTH + 1 + 2 * MAX_LABEL_LENGTH


@lru_cache(8_192)
def _is_valid_label(key: str, value: str) -> bool:
    """Whether a label is valid. Cached, because few labels occur on many objects."""
    return not (any(qualified_name_errors(key)) or any(label_value_errors(value)))


def _annotation_problems(annotations: Object) -> Iterator[Problem]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len(value.encode()) if key != CHARGED_USER else 0  # not the client's
        for fault in qualified_name_errors(key.lower()):
            yield Problem.invalid("metadata.annotations", key, fault)
    if size > MAX_ANNOTATIONS_BYTES:
        yield Problem.too_long("metadata.annotations", MAX_ANNOTATIONS_BYTES)


def _finalizer_problems(finalizers: list[str], kind: Kind) -> Iterator[Problem]:
    for index, finalizer in enumerate(finalizers):
        for fault in qualified_name_errors(finalizer):
            yield Problem.invalid("metadata.finalizers", finalizer, fault)
        if kind.builtin and kind.requires_finalizer_domains and not _is_standard_or_qualified(finalizer):
            reason = "name is neither a standard finalizer name nor is it fully qualified"
            yield Problem.invalid(f"metadata.finalizers[{index}]", finalizer, reason)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        reason = "finalizers orphan and foregroundDeletion cannot be both set"
        yield Problem.invalid("metadata.finalizers", finalizers, reason)


_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _is_standard_or_qualified(finalizer: str) -> bool:
    return "/" in finalizer or finalizer in _STANDARD_FINALIZERS


def finalizer_warnings(old: Object | None, new: Object, kind: Kind) -> Iterator[str]:
    """Warnings about new finalizers without a domain. Built-in kinds have none: most reject them."""
    finalizers = metadata(new).get("finalizers")
    if not finalizers or kind.builtin:
        return
    known = () if old is None else metadata(old).get("finalizers") or ()
    for finalizer in sorted({each for each in finalizers if each not in known}):
        if not _is_standard_or_qualified(finalizer):
            path = " including a path (/)" if "." in finalizer else ""
            yield (
                f"metadata.finalizers: {quote_value(finalizer)}: prefer a domain-qualified finalizer name{path} "
                "to avoid accidental conflicts with other finalizer writers"
            )


def remove_duplicate_owners(obj: Object) -> Iterator[str]:
    """Removes repeated ownerReferences, with a warning. Entries that only share their uid are kept."""
    owners = metadata(obj).get("ownerReferences")
    if not owners or len(owners) == 1:
        return
    unique: list[Object] = []
    repeated: list[str] = []
    for owner in owners:
        if owner in unique:
            repeated.append(owner.get("uid", ""))
        else:
            unique.append(owner)
    if repeated:
        metadata(obj)["ownerReferences"] = unique
        yield (
            ".metadata.ownerReferences contains duplicate entries, which were removed; "
            f"duplicate UID(s) observed: {truncate(', '.join(repeated))}"
        )


def _owner_problems(owners: Any) -> Iterator[Problem]:
    controllers = []
    for index, owner in enumerate(owners):
        version = owner.get("apiVersion")
        kind = owner.get("kind", "")
        if version is not None and (not version.rpartition("/")[2] or version.count("/") > 1):
            yield Problem.invalid("metadata.ownerReferences.apiVersion", version, "version must not be empty")
        for name in ("apiVersion", "kind", "name", "uid"):
            if name not in owner:
                yield Problem.required(f"metadata.ownerReferences[{index}].{name}", "must not be empty")
            elif not owner[name] and name != "apiVersion":
                yield Problem.invalid(f"metadata.ownerReferences.{name}", "", "must not be empty")
        if (version, kind) == ("v1", "Event"):
            reason = "/v1, Kind=Event is disallowed from being an owner"
            yield Problem.invalid("metadata.ownerReferences", owner, reason)
        if owner.get("controller"):
            controllers.append(f"{kind}/{owner.get('name', '')}")
    if len(controllers) > 1:
        reason = 'Only one reference can have Controller set to true. Found "true" in references for '
        yield Problem.invalid("metadata.ownerReferences", owners, reason + " and ".join(controllers[:2]))
