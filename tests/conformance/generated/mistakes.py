"""The mistakes that clients make, put into what would otherwise be valid."""

from typing import Any

from tests.conformance.generated.values import Source

Json = Any
MISSING_UID = "11111111-1111-1111-1111-111111111111"
OTHER_UID = "22222222-2222-2222-2222-222222222222"
MALFORMED = ("{", '{"a": 1', "[1,]", "kind: [", '{"spec": {"displayName": "x"}} x', '"text"', "5", "[]")

_METADATA_MISTAKES: dict[str, tuple[Json, ...]] = {
    "uid": (OTHER_UID, "x"),
    "generation": (7, -1, "7"),
    "selfLink": ("/x",),
    "creationTimestamp": ("2020-01-01T00:00:00Z", None, "nope"),
    "deletionTimestamp": ("2020-01-01T00:00:00Z", None),
    "deletionGracePeriodSeconds": (5,),
    "generateName": ("g-$run-",),
    "bogus": (1,),
    "annotations": ({"a": 5}, "x", None, {"bad key": "v"}),
    "managedFields": (
        [],
        [{}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
    ),
    "finalizers": (["orphan"], ["foregroundDeletion"], ["plain"], ["bad value/"], "x", [None]),
    "namespace": ("service-p-other", "default", "", "Bad_NS"),
    "labels": ({"run": "$run", "a": 5}, {"run": "$run", "a": True}, "x", {"run": "$run", "-a": "v"}),
    "name": ("", 5, "Bad_Name", "a/b"),
}
_LABEL_MISTAKES = {"bad key": "v", "a/b/c": "v", "é": "v", "k" * 70: "v", "/x": "v", "a": "not ok!", "b": "x" * 70}


def spoil_fields(source: Source, body: Json) -> None:
    """Puts one mistake somewhere into the body."""
    at = body
    while source.chance(0.6):
        inner = [key for key, value in at.items() if isinstance(value, dict) and key != "metadata"]
        if not inner:
            break
        at = at[source.pick(*inner)]
    keys = [key for key in at if key not in ("metadata", "kind", "apiVersion")]
    if source.chance(0.45) or not keys:
        at[source.pick("bogus", "Spec", "extra")] = source.anything()
    else:
        wrong: tuple[Json, ...] = (None, 5, True, "text", [], {}, [None], [1], {"a": 1}, ["x", "x"])
        at[source.pick(*keys)] = source.pick(*wrong)


def spoil_metadata(source: Source, metadata: Json) -> None:
    """Puts one or two mistakes into the metadata."""
    for field in source.random.sample(sorted(_METADATA_MISTAKES), source.pick(1, 1, 2)):
        metadata[field] = source.pick(*_METADATA_MISTAKES[field])
    if source.chance(0.3) and isinstance(metadata.get("labels"), dict):
        key = source.pick(*sorted(_LABEL_MISTAKES))
        metadata["labels"][key] = _LABEL_MISTAKES[key]


def spoil_type(source: Source, body: Json) -> None:
    """Takes kind or apiVersion away, or puts another one in their place."""
    field = source.pick("kind", "apiVersion")
    wrong = source.pick(None, "", "Nope", "v1", "management.service.sh/v1", 5)
    body.pop(field)
    if wrong is not None:
        body[field] = wrong


def wrong_owners(source: Source) -> Json:
    """Owner references that are rejected: a valid one to an object that does not exist ends the object soon."""
    right = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": MISSING_UID}
    wrong: Json = source.pick(
        *({"apiVersion": value} for value in ("", "a/b/c", None)),
        *({"kind": value} for value in ("", None, 5)),
        *({"name": value} for value in ("", None)),
        *({"uid": value} for value in ("", None)),
        {"apiVersion": "v1", "kind": "Event"},
        {"controller": "x"},
    )
    entry = {key: value for key, value in (right | wrong).items() if value is not None}
    return [entry] * source.pick(1, 1, 2)
