"""Rules for writes of any kind: versions, status, immutable fields, finalizers and deletionTimestamp, and URLs.

None of the URLs in an object may contain a user or password. They show up in responses, tables, logs and the audit log,
so a password in one would leak; passwords have fields of their own. Browsers load icons, so an icon must be an image,
which cannot run code. The fields are found by name in the schemas, so new kinds are covered automatically. Stored
values are not checked again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from fairlead.core.errors import MAX_PROBLEMS, BadRequest, Conflict, Invalid, Problem
from fairlead.core.objects import Object, deep_copy, get_path, json_equal, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.core.validators import check_icon, check_no_credentials
from fairlead.registry import object_metadata
from fairlead.registry.kind import Change, Kind
from fairlead.registry.patching.managed_fields import managed_fields_problems
from fairlead.registry.schema import Schema
from fairlead.registry.write_options import DeleteOptions, WriteOptions

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_POLICY_FINALIZER = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


def has_finalizers(obj: Object, kind: Kind) -> bool:
    """Whether the object has finalizers left, which block its removal."""
    return any(get_path(obj, path) for path in kind.finalizer_paths)


def is_deletion_complete(obj: Object, kind: Kind) -> bool:
    """Whether the object is marked as deleted and has no finalizers left."""
    return "deletionTimestamp" in obj["metadata"] and not has_finalizers(obj, kind)


def is_removal(change: Change) -> bool:
    """Whether the change removes the object from the store."""
    if change.verb == "update":
        return is_deletion_complete(change.obj, change.kind)
    return change.verb == "delete" and not has_finalizers(change.obj, change.kind)


def mark_deleted(old: Object, kind: Kind, delete_options: DeleteOptions, now: str) -> Object | None:
    """The object marked as deleted, or None if it can be removed at once."""
    new = deep_copy(old)
    meta = metadata(new)
    finalizers = [
        each for each in meta.get("finalizers") or () if each not in _replaced_finalizers(delete_options.propagation)
    ]
    wanted = None if kind.ignores_propagation_policy else _POLICY_FINALIZER.get(delete_options.propagation)
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    if finalizers:
        if set(finalizers) != set(meta.get("finalizers") or ()):
            meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if not has_finalizers(new, kind):
        return None
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = now
        meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            meta["generation"] += 1
        if kind.on_delete is not None:
            kind.on_delete(new)
    return new


def _replaced_finalizers(propagation: str) -> frozenset[str]:
    """The finalizers of an earlier delete that an explicit propagation policy replaces."""
    return frozenset({FOREGROUND_FINALIZER, ORPHAN_FINALIZER}) if propagation else frozenset()


def check_preconditions(old: Object, kind: Kind, delete_options: DeleteOptions) -> None:
    meta, group = metadata(old), kind.stored_resource[0]
    if delete_options.uid is not None and delete_options.uid != meta["uid"]:
        reason = (
            f"the UID in the precondition ({delete_options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise Conflict.of(kind.name, group, meta["name"], reason)
    if delete_options.resource_version not in (None, meta["resourceVersion"]):
        reason = (
            f"the ResourceVersion in the precondition ({delete_options.resource_version}) does not match the "
            "ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise Conflict.of(kind.name, group, meta["name"], reason)


# --- update rules ---
# Rules for every update besides the kind's own: versions, separation of the status, immutable fields.
#
# `registry/resource.py` calls these on updates and patches. They depend only on the old and the new object, so they
# can run in a thread.


MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


def check_no_version(version: str) -> None:
    """Rejects a version of an object to be created. What is not a version is ignored, as in Kubernetes."""
    if version.isdecimal() and version.strip("0"):
        raise BadRequest("resourceVersion should not be set on objects to be created")


def check_uid_and_version(kind: Kind, old: Object, new: Object, options: WriteOptions) -> None:
    """Rejects a change to an object with another uid, or to an older version of this one. Another uid in a patch is one
    of the `update_problems` of metadata."""
    before, after = old["metadata"], new["metadata"]
    if after.get("uid") and after["uid"] != before["uid"] and not options.is_patch:
        reason = f"Precondition failed: UID in precondition: {after['uid']}, UID in object meta: {before['uid']}"
        raise Conflict.of(kind.plural, kind.group, before["name"], reason)
    version = (after.get("resourceVersion") or "").lstrip("0")  # 0 is no version
    if not version and not kind.allows_unconditional_update:
        problem = Problem.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise Invalid.of(kind.plural, kind.group, before["name"], [problem])
    if version and version != before["resourceVersion"]:
        raise Conflict.of(kind.plural, kind.group, before["name"], MODIFIED_MESSAGE)


def separate_status(change: Change, old: Object, *, is_patch: bool) -> None:
    """For kinds with a status subresource: /status changes only the status, and other writes do not change it. Only a
    PUT may remove a status that is empty."""
    kind, new = change.kind, change.obj
    if change.subresource == "status":
        status = new.get("status")
        change.sent_metadata = metadata(new)
        managed = metadata(new).get("managedFields")
        new.clear()
        new.update(deep_copy(old))
        new.pop("status", None)
        if status is not None:
            new["status"] = status
        if managed is not None:
            metadata(new)["managedFields"] = managed
    elif kind.status_subresource:
        if old.get("status") or (is_patch and "status" in old):
            new["status"] = old["status"]
        elif "status" in new and ("status" in old or kind.builtin):
            new["status"] = {}
        else:
            new.pop("status", None)


def relevant_problems(kind: Kind, problems: list[Problem], subresource: str = "") -> list[Problem]:
    """The problems in the part that this write changes: the status for /status, everything else otherwise."""
    if not problems or (subresource != "status" and not kind.status_subresource):
        return problems
    return [each for each in problems if (each.field.partition(".")[0] == "status") == (subresource == "status")]


def has_ignored_type_error(problems: list[Problem], relevant: list[Problem]) -> bool:
    """Whether a part that this write does not change has a value of the wrong type."""
    return any(each.reason == "FieldValueTypeInvalid" for each in problems if each not in relevant)


def immutable_problems(kind: Kind, old: Object, new: Object) -> list[Problem]:
    """A problem for each immutable field that has changed."""
    values = [(path, get_path(old, path), get_path(new, path)) for path in kind.immutable]
    return [
        Problem.invalid(path, after, "field is immutable")
        for path, before, after in values
        if before is not None and before != after
    ]


def is_same_spec(kind: Kind, old: Object, new: Object) -> bool:
    """Whether the desired state is the same: everything but metadata, and the status if it is a subresource."""
    if old.get("spec") != new.get("spec"):
        return False
    ignored = ("metadata", "status") if kind.status_subresource else ("metadata",)
    before, after = ({name: value for name, value in each.items() if name not in ignored} for each in (old, new))
    return json_equal(before, after)


_URL_FIELD = re.compile(r".*(url|uri|repo|repository|issuer|endpoint|server)", re.IGNORECASE)
_ICON_FIELD = re.compile(r"(.*[a-z_-])?(icon|logo|avatar|picture)(url)?", re.IGNORECASE)
UrlCheck = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class UrlFields:
    """Where a part of an object holds URLs: a check, if it is a URL itself, and its fields that hold some."""

    check: UrlCheck | None
    fields: Mapping[str, "UrlFields"]

    def are_valid(self, value: Any) -> bool:
        """Whether all URLs in a value, or in each value of a list, pass their checks."""
        if isinstance(value, dict):
            for name in self.fields.keys() & value.keys():  # noqa: SIM110 - a generator costs twice as much
                if not self.fields[name].are_valid(value[name]):
                    return False
            return True
        if isinstance(value, list):
            return all(map(self.are_valid, value))
        return self.check is None or not isinstance(value, str) or self.check(value) is None

    def iter_invalid(self, value: Any, steps: tuple[str, ...], path: str) -> "Iterator[InvalidUrl]":
        if isinstance(value, list):
            for index, each in enumerate(value):
                yield from self.iter_invalid(each, steps, f"{path}[{index}]")
        elif isinstance(value, dict):
            for name, inner in self.fields.items():
                if name in value:
                    yield from inner.iter_invalid(value[name], (*steps, name), f"{path}.{name}" if path else name)
        elif self.check is not None and isinstance(value, str) and (reason := self.check(value)) is not None:
            yield InvalidUrl(path, steps, value, reason)


class InvalidUrl(NamedTuple):
    """`steps` is the path without the indexes of lists."""

    path: str
    steps: tuple[str, ...]
    text: str
    reason: str


def find_url_fields(kind: Kind) -> UrlFields:
    """Every field of the kind that holds a URL."""
    return UrlFields(None, _find_inner_urls(kind.fields))


def _find_inner_urls(properties: Mapping[str, Schema]) -> Mapping[str, UrlFields]:
    found = {}
    for name, schema in properties.items():
        schema = schema.get("items", schema)
        check = _find_url_check(name) if schema.get("type") == "string" else None
        inner = _find_inner_urls(schema.get("properties", {}))
        if check is not None or inner:
            found[name] = UrlFields(check, inner)
    return found


def _find_url_check(name: str) -> UrlCheck | None:
    if _ICON_FIELD.fullmatch(name):
        return check_icon
    return check_no_credentials if _URL_FIELD.fullmatch(name) else None


def url_problems(url_fields: UrlFields, change: Change) -> Iterator[Problem]:
    """Problems with the URLs of a change. The server's own writes are exempt: they copy what users have written."""
    obj = change.obj
    if change.user is CONTROLLER_USER or url_fields.are_valid(obj):
        return
    stored = {(each.steps, each.text) for each in url_fields.iter_invalid(change.old, (), "")}
    for invalid in url_fields.iter_invalid(obj, (), ""):
        if (invalid.steps, invalid.text) not in stored:
            # The message does not quote the value, which may contain a password.
            yield Problem(invalid.path, "FieldValueInvalid", f"Invalid value: {invalid.reason}")


def raise_if_invalid(
    change: Change, url_fields: UrlFields, problems: Sequence[Problem], update_problems: Iterable[Problem] = ()
) -> None:
    """Raises all problems at once. `problems` are those of the schema: a kind's own checks rely on a valid schema."""
    kind, obj = change.kind, change.obj
    own = chain(object_metadata.problems(obj, kind), managed_fields_problems(obj), url_problems(url_fields, change))
    every = chain(problems, update_problems, own)
    found = list(islice(every, 10 * MAX_PROBLEMS))
    if not problems:
        found.extend(islice(kind.check(change), 10 * MAX_PROBLEMS))
    if found:
        raise Invalid.of(kind.name, kind.stored_resource[0], name_of(obj), found)
    if "finalizers" in obj["metadata"]:
        change.warnings.extend(object_metadata.finalizer_warnings(change.old, obj, kind))
