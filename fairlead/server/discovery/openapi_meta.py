"""The schemas that every kind's document shares: metadata, Status, options of a delete. `openapi_v3.py` includes them.

They carry the names that Kubernetes gives them, because clients look some up by name. The descriptions are what
`kubectl explain app.metadata` shows.
"""

from fairlead.registry import limits
from fairlead.registry import schema as words
from fairlead.registry.schema import Schema

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"

DELETE_OPTIONS = f"{_META}.DeleteOptions"
LIST_META = f"{_META}.ListMeta"
MANAGED_FIELDS_ENTRY = f"{_META}.ManagedFieldsEntry"
OBJECT_META = f"{_META}.ObjectMeta"
OWNER_REFERENCE = f"{_META}.OwnerReference"
PATCH = f"{_META}.Patch"
STATUS = f"{_META}.Status"
STATUS_CAUSE = f"{_META}.StatusCause"
STATUS_DETAILS = f"{_META}.StatusDetails"

REFERENCE = "#/components/schemas/"


def ref(name: str, description: str = "") -> Schema:
    """A schema by its name. OpenAPI 3.0 ignores whatever stands beside `$ref`, hence `allOf` around a described one."""
    pointer = {"$ref": REFERENCE + name}
    return {"description": description, "allOf": [pointer]} if description else pointer


def shared_schemas() -> dict[str, Schema]:
    """name -> schema of everything that kinds refer to."""
    return {
        DELETE_OPTIONS: _delete_options(),
        LIST_META: _list_meta(),
        MANAGED_FIELDS_ENTRY: _managed_fields_entry(),
        OBJECT_META: _object_meta(),
        OWNER_REFERENCE: _owner_reference(),
        PATCH: {"type": "object", "description": "A change in the format that the Content-Type header names."},
        STATUS: _status(),
        STATUS_CAUSE: _status_cause(),
        STATUS_DETAILS: _status_details(),
    }


def type_fields() -> dict[str, Schema]:
    """The two fields that say what an object is."""
    return {
        "apiVersion": words.string(
            "Group and version of this object's schema, as in `group/v1`, or `v1` in the core group."
        ),
        "kind": words.string("The kind of object that this is, in CamelCase."),
    }


def _known_as(schema: Schema, kind: str) -> Schema:
    return {**schema, "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": kind}]}


def _merged(schema: Schema, key: str = "") -> Schema:
    """A list whose entries a strategic merge patch adds to, told apart by `key` if they are structures."""
    merged = {**schema, "x-kubernetes-patch-strategy": "merge"}
    return {**merged, "x-kubernetes-patch-merge-key": key} if key else merged


def _text(description: str = "") -> Schema:
    """A text of metadata, as long as the validator of metadata lets it be."""
    return words.string(description, longest=limits.METADATA_TEXT)


def _answer(description: str) -> Schema:
    """A text that nobody sends: as long as the server needs it."""
    return words.string(description, longest=0)


def _object_meta() -> Schema:
    text, when = _text, words.timestamp
    owners = words.array_map(
        ("uid",),
        ref(OWNER_REFERENCE),
        "Objects that this one depends on; it goes with the last.",
        most=limits.OWNERS,
    )
    finalizers = words.array_set(
        text(),
        "Must be empty before the object goes; each entry's owner removes it when done.",
        most=limits.FINALIZERS,
    )
    return words.obj(
        "What every stored object has: its name, where it is, and its history.",
        annotations=words.mapping(
            words.string(longest=limits.ANNOTATION),
            "Notes of tools and people. Not used for selection.",
            most=limits.ANNOTATIONS,
        ),
        creationTimestamp=when("When the object was created. Set by the server."),
        deletionGracePeriodSeconds=words.integer(
            "Seconds left to the object when its deletion was asked for. Read-only."
        ),
        deletionTimestamp=when(
            "When deletion was asked for. Set by the server; the object goes once finalizers are empty."
        ),
        finalizers=_merged(finalizers),
        generateName=text("Start of a name that the server completes, used when name is empty."),
        generation=words.integer("Counts the changes of the desired state. Set by the server."),
        labels=words.mapping(text(), "Short texts to select objects by.", most=limits.LABELS),
        managedFields=words.array(
            ref(MANAGED_FIELDS_ENTRY), "Who set which field. Kept by the server.", most=limits.MANAGERS
        ),
        name=text("Unique among the objects of this kind in the same namespace. Cannot change."),
        namespace=text("The namespace that the object lives in, empty if its kind has none. Cannot change."),
        ownerReferences=_merged(owners, "uid"),
        resourceVersion=text(
            "The version of this state. Sent back with an update, it makes sure that nothing gets lost."
        ),
        selfLink=text("No longer filled in."),
        uid=text("Unique over all objects and times. Set by the server."),
    )


def _list_meta() -> Schema:
    return words.obj(
        "What every list has.",
        required=(),
        **{"continue": _answer("Asks for the next part of the list. Empty if this is the last.")},
        remainingItemCount=words.integer("How many objects come after this part, if known."),
        resourceVersion=_answer("The version of this state of the list; a watch can start here."),
        selfLink=_answer("No longer filled in."),
    )


def _owner_reference() -> Schema:
    schema = words.obj(
        "An object that another one depends on, in the same namespace or in none.",
        required=("apiVersion", "kind", "name", "uid"),
        apiVersion=_text("Group and version of the owner."),
        blockOwnerDeletion=words.boolean("A foreground deletion of the owner waits for this object."),
        controller=words.boolean("The owner is the one that controls this object."),
        kind=_text("Kind of the owner."),
        name=_text("Name of the owner."),
        uid=_text("Uid of the owner."),
    )
    return words.atomic(schema)


def _managed_fields_entry() -> Schema:
    return words.obj(
        "The fields that one manager set in one way.",
        apiVersion=_text("Version of the object that the fields are named by."),
        fieldsType=_text("Format of the fields: always FieldsV1."),
        fieldsV1=words.free(
            "The fields as a tree: f: starts a field's name, k: the keys of a list entry, v: its value."
        ),
        manager=_text("Who set the fields."),
        operation=_text("How they were set: Apply or Update."),
        subresource=_text("The subresource through which they were set, empty for the object itself."),
        time=words.timestamp("When the manager last set or gave up a field."),
    )


def _status() -> Schema:
    schema = words.obj(
        "The outcome of a request that returns no object.",
        required=(),
        **type_fields(),
        code=words.integer("The HTTP status code.", bits=32),
        details=ref(STATUS_DETAILS, "What the outcome is about, for programs."),
        message=_answer("The outcome for people."),
        metadata=ref(LIST_META, "Standard list metadata."),
        reason=_answer("Why the request failed, in one word."),
        status=_answer("Success or Failure."),
    )
    return _known_as(schema, "Status")


def _status_details() -> Schema:
    return words.obj(
        "What an outcome is about.",
        causes=words.array(ref(STATUS_CAUSE), "Everything that is wrong, one entry each.", most=0),
        group=_answer("Group of the resource."),
        kind=_answer("The resource or kind."),
        name=_answer("Name of the object."),
        retryAfterSeconds=words.integer("Seconds to wait before asking again.", bits=32),
        uid=_answer("Uid of the object."),
    )


def _status_cause() -> Schema:
    return words.obj(
        "One thing that is wrong.",
        field=_answer("The field in question, such as spec.ttl or spec.access[0].verbs."),
        message=_answer("What is wrong with it, for people."),
        reason=_answer("The same in one word."),
    )


def _delete_options() -> Schema:
    schema = words.obj(
        "How to delete.",
        required=(),
        **type_fields(),
        dryRun=words.array(words.string(), "All: check everything, change nothing."),
        gracePeriodSeconds=words.integer("Seconds that the object may take to end; 0 is at once."),
        orphanDependents=words.boolean("Deprecated: use propagationPolicy."),
        preconditions=words.obj(
            "Delete only if the object is still this one.",
            resourceVersion=words.string("The resourceVersion that it must have."),
            uid=words.string("The uid that it must have."),
        ),
        propagationPolicy=words.string("What becomes of its dependants: Background, Foreground or Orphan."),
    )
    return _known_as(schema, "DeleteOptions")
