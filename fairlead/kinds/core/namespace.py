"""Namespace of the core group: where the names of objects are unique. Each project has one.

A namespace is held by `spec.finalizers`, not by those in its metadata: only the subresource `finalize` changes them,
and only once they are gone does a deleted namespace go. Its phase follows the deletion mark.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, metadata, name_of
from fairlead.registry import limits
from fairlead.registry.kind import ALL_VERBS, Change, Column, Kind, Problem
from fairlead.registry.names import qualified_faults
from fairlead.registry.schema import array, array_map, enum, obj, string, timestamp

FINALIZER = "kubernetes"
"""Stands in every new namespace, and holds it until its content is gone."""

NAME_LABEL = "kubernetes.io/metadata.name"
"""Repeats the name as a label, so that namespaces can be selected by name wherever labels are."""

_STANDARD_FINALIZERS = {FINALIZER, "orphan", "foregroundDeletion"}

SPEC = obj(
    "What holds the namespace.",
    finalizers=array(
        string(longest=limits.METADATA_TEXT),
        "Who must let go before the namespace can end. `kubernetes` removes the content.",
        most=limits.FINALIZERS,
    ),
)

STATUS = obj(
    "Where the namespace stands. Written by the server.",
    phase=enum("`Terminating` from the deletion on, while the content is being removed.", "Active", "Terminating"),
    conditions=array_map(
        ("type",),
        obj(
            required=("type", "status"),
            type=string("What the condition is about."),
            status=enum("Whether it holds.", "True", "False", "Unknown"),
            lastTransitionTime=timestamp("When the status last changed to another value."),
            reason=string("Why, as one word for programs."),
            message=string("Why, for people.", longest=limits.MESSAGE),
        ),
        "What keeps an ending namespace from ending, one entry for each aspect.",
        most=limits.CONDITIONS,
    ),
)


def prepare(change: Change) -> None:
    new = change.obj
    meta = metadata(new)
    meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name_of(new)}
    if change.old is None:
        sent = (new.get("spec") or {}).get("finalizers") or []
        new["spec"] = {"finalizers": sent if FINALIZER in sent else [*sent, FINALIZER]}
        new["status"] = {}
    elif change.subresource != "finalize":
        new["spec"] = dict(change.old.get("spec") or {})
    status = dict(new.get("status") or {})
    if change.subresource != "status" or not status.get("phase"):
        status["phase"] = _phase(meta)
    new["status"] = status


def mark(namespace: Object) -> None:
    """Shows the deletion in the phase. Namespaces know no grace period: they end when their content is gone."""
    namespace["status"] = {**(namespace.get("status") or {}), "phase": _phase(metadata(namespace))}
    metadata(namespace).pop("deletionGracePeriodSeconds", None)


def check(change: Change) -> Iterable[Problem]:
    for index, name in enumerate(change.spec.get("finalizers") or ()):
        path = f"spec.finalizers[{index}]"
        yield from (Problem.invalid(path, name, fault) for fault in qualified_faults(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            yield Problem.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
    phase, due = (change.obj.get("status") or {}).get("phase"), _phase(metadata(change.obj))
    if phase != due:
        yield Problem.invalid("status.phase", phase, f"must be {due}: the phase follows metadata.deletionTimestamp")


def _phase(meta: Object) -> str:
    return "Terminating" if meta.get("deletionTimestamp") else "Active"


NAMESPACE = Kind(
    name="Namespace",
    plural="namespaces",
    namespaced=False,
    group="",
    fields={"spec": SPEC, "status": STATUS},
    description="A scope for names. What is in a namespace ends with it.",
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    status_subresource=True,
    parts=("finalize",),
    columns=(Column("Status", "status.phase", description="Active, or Terminating once it is deleted."),),
    selectable=("status.phase",),
    name_is_label=True,
    held_by=("spec.finalizers", "metadata.finalizers"),
    deleting=mark,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=check,
)
