"""The schemas that all OpenAPI documents share: ObjectMeta, ListMeta, Status, DeleteOptions.

They have their Kubernetes names, because clients look some of them up by name. `kubectl explain app.metadata` shows the
descriptions.
"""

from fairlead.registry import limits
from fairlead.registry import schema as schemas
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

REF_PREFIX = "#/components/schemas/"


def ref(name: str, description: str = "") -> Schema:
    """A reference to a schema. OpenAPI 3.0 ignores siblings of `$ref`, so a description needs `allOf`."""
    pointer = {"$ref": REF_PREFIX + name}
    return {"description": description, "allOf": [pointer]} if description else pointer


def shared_schemas() -> dict[str, Schema]:
    """name -> schema, for all schemas that kinds refer to."""
    return {
        DELETE_OPTIONS: _delete_options(),
        LIST_META: _list_meta(),
        MANAGED_FIELDS_ENTRY: _managed_fields_entry(),
        OBJECT_META: _object_meta(),
        OWNER_REFERENCE: _owner_reference(),
        PATCH: {"type": "object", "description": "A patch in the format given by the Content-Type header."},
        STATUS: _status(),
        STATUS_CAUSE: _status_cause(),
        STATUS_DETAILS: _status_details(),
    }


def type_fields() -> dict[str, Schema]:
    """The fields `apiVersion` and `kind`."""
    return {
        "apiVersion": schemas.string(
            "Group and version of this object's schema, as in `group/v1`, or `v1` in the core group."
        ),
        "kind": schemas.string("The kind of this object, in CamelCase."),
    }


def _with_gvk(schema: Schema, kind: str) -> Schema:
    return {**schema, "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": kind}]}


def _with_merge_strategy(schema: Schema, key: str = "") -> Schema:
    """A list that a strategic merge patch merges; `key` is the merge key if its entries are objects."""
    merged = {**schema, "x-kubernetes-patch-strategy": "merge"}
    return {**merged, "x-kubernetes-patch-merge-key": key} if key else merged


def _metadata_string(description: str = "") -> Schema:
    """A string in metadata, with the maximum length that the metadata validator enforces."""
    return schemas.string(description, max_length=limits.METADATA_TEXT)


def _response_string(description: str) -> Schema:
    """A string that only responses contain, without a maximum length."""
    return schemas.string(description, max_length=0)


def _object_meta() -> Schema:
    text, when = _metadata_string, schemas.timestamp
    owners = schemas.array_map(
        ("uid",),
        ref(OWNER_REFERENCE),
        "Objects that this one depends on. It is garbage collected when all of them are gone.",
        max_items=limits.OWNER_REFERENCES,
    )
    finalizers = schemas.array_set(
        text(),
        "The object is only removed once this list is empty; the component behind each entry removes it when done.",
        max_items=limits.FINALIZERS,
    )
    return schemas.obj(
        "Metadata that all persisted objects have.",
        annotations=schemas.mapping(
            schemas.string(max_length=limits.ANNOTATION),
            "Unstructured data set by tools and users. Cannot be used in selectors.",
            max_properties=limits.ANNOTATIONS,
        ),
        creationTimestamp=when("When the object was created. Set by the server."),
        deletionGracePeriodSeconds=schemas.integer(
            "Grace period in seconds, set when deletion was requested. Read-only."
        ),
        deletionTimestamp=when(
            "When deletion was requested. Set by the server; the object is removed once finalizers are empty."
        ),
        finalizers=_with_merge_strategy(finalizers),
        generateName=text("Prefix of a name that the server generates, used if name is empty."),
        generation=schemas.integer("Incremented with every change of the desired state. Set by the server."),
        labels=schemas.mapping(text(), "Keys and values that selectors can match.", max_properties=limits.LABELS),
        managedFields=schemas.array(
            ref(MANAGED_FIELDS_ENTRY),
            "Which manager set which fields. Maintained by the server.",
            max_items=limits.MANAGED_FIELDS,
        ),
        name=text("Unique among the objects of this kind in the same namespace. Cannot change."),
        namespace=text("The namespace of the object; empty for cluster-scoped kinds. Cannot change."),
        ownerReferences=_with_merge_strategy(owners, "uid"),
        resourceVersion=text("The version of this object. Sent with an update, it prevents lost updates."),
        selfLink=text("Deprecated: no longer set."),
        uid=text("Unique in space and time. Set by the server."),
    )


def _list_meta() -> Schema:
    return schemas.obj(
        "Metadata that all lists have.",
        required=(),
        **{"continue": _response_string("Token for the next page of the list. Empty on the last page.")},
        remainingItemCount=schemas.integer("Number of objects after this page, if known."),
        resourceVersion=_response_string("The version of this list. A watch can start from it."),
        selfLink=_response_string("Deprecated: no longer set."),
    )


def _owner_reference() -> Schema:
    schema = schemas.obj(
        "An object that this one depends on, in the same namespace or cluster-scoped.",
        required=("apiVersion", "kind", "name", "uid"),
        apiVersion=_metadata_string("Group and version of the owner."),
        blockOwnerDeletion=schemas.boolean("A foreground deletion of the owner waits for this object."),
        controller=schemas.boolean("The owner is the one that controls this object."),
        kind=_metadata_string("Kind of the owner."),
        name=_metadata_string("Name of the owner."),
        uid=_metadata_string("Uid of the owner."),
    )
    return schemas.atomic(schema)


def _managed_fields_entry() -> Schema:
    return schemas.obj(
        "The fields that a manager set with one operation.",
        apiVersion=_metadata_string("API version of the object that the fields refer to."),
        fieldsType=_metadata_string("Format of the fields: always FieldsV1."),
        fieldsV1=schemas.open_object(
            "The fields as a tree: f: is a field name, k: the keys of a list entry, v: the value of a list entry."
        ),
        manager=_metadata_string("Name of the manager that set the fields."),
        operation=_metadata_string("How they were set: Apply or Update."),
        subresource=_metadata_string("The subresource through which they were set, empty for the object itself."),
        time=schemas.timestamp("When the manager last added, changed or removed a field."),
    )


def _status() -> Schema:
    schema = schemas.obj(
        "The outcome of a request that returns no object.",
        required=(),
        **type_fields(),
        code=schemas.integer("The HTTP status code.", bits=32),
        details=ref(STATUS_DETAILS, "Machine-readable details of the outcome."),
        message=_response_string("Human-readable description of the outcome."),
        metadata=ref(LIST_META, "Standard list metadata."),
        reason=_response_string("Why the request failed, in one word."),
        status=_response_string("Success or Failure."),
    )
    return _with_gvk(schema, "Status")


def _status_details() -> Schema:
    return schemas.obj(
        "Machine-readable details of an outcome.",
        causes=schemas.array(ref(STATUS_CAUSE), "All causes of the error, one entry each.", max_items=0),
        group=_response_string("Group of the resource."),
        kind=_response_string("The resource or kind."),
        name=_response_string("Name of the object."),
        retryAfterSeconds=schemas.integer("Seconds to wait before retrying.", bits=32),
        uid=_response_string("Uid of the object."),
    )


def _status_cause() -> Schema:
    return schemas.obj(
        "One cause of an error.",
        field=_response_string("The field in question, such as spec.ttl or spec.access[0].verbs."),
        message=_response_string("Human-readable description of the cause."),
        reason=_response_string("Machine-readable reason of the cause, in one word."),
    )


def _delete_options() -> Schema:
    schema = schemas.obj(
        "Options of a delete request.",
        required=(),
        **type_fields(),
        dryRun=schemas.array(schemas.string(), "All: run all checks, but change nothing."),
        gracePeriodSeconds=schemas.integer("Seconds until the object is deleted; 0 deletes it immediately."),
        orphanDependents=schemas.boolean("Deprecated: use propagationPolicy."),
        preconditions=schemas.obj(
            "Delete only if the object has these values.",
            resourceVersion=schemas.string("The resourceVersion that it must have."),
            uid=schemas.string("The uid that it must have."),
        ),
        propagationPolicy=schemas.string("How dependents are deleted: Background, Foreground or Orphan."),
    )
    return _with_gvk(schema, "DeleteOptions")
