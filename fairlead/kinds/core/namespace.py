"""Namespace of the core group. Each project has one.

Deletion waits for `spec.finalizers`, which only the subresource `finalize` can change, in addition to the finalizers in
the metadata. The phase follows metadata.deletionTimestamp.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, metadata, name_of
from fairlead.registry import limits
from fairlead.registry.kind import ALL_VERBS, Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import qualified_name_errors
from fairlead.registry.schema import array, array_map, enum, obj, string, timestamp

FINALIZER = "kubernetes"
"""Finalizer of every new namespace, removed once the namespace is empty."""

NAME_LABEL = "kubernetes.io/metadata.name"
"""Label with the name of the namespace, for label selectors."""

SYSTEM_NAMESPACE = "service-system"
BUILTIN_NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""Namespaces that always exist: the default one, and the one for the server's own objects."""

_STANDARD_FINALIZERS = {FINALIZER, "orphan", "foregroundDeletion"}

SPEC = obj(
    "Finalizers of the namespace.",
    finalizers=array(
        string(max_length=limits.METADATA_TEXT),
        "Must be empty before the namespace is removed from storage. `kubernetes` stands for deleting its content.",
        max_items=limits.FINALIZERS,
    ),
)

STATUS = obj(
    "Current state of the namespace. Written by the server.",
    phase=enum("Lifecycle phase; `Terminating` while the content is being deleted.", "Active", "Terminating"),
    conditions=array_map(
        ("type",),
        obj(
            required=("type", "status"),
            type=string("Type of the condition."),
            status=enum("Status of the condition.", "True", "False", "Unknown"),
            lastTransitionTime=timestamp("Last time the status changed to another value."),
            reason=string("Machine-readable reason in CamelCase."),
            message=string("Human-readable message.", max_length=limits.MESSAGE),
        ),
        "Why a terminating namespace is not deleted yet, one entry for each type.",
        max_items=limits.CONDITIONS,
    ),
)


def set_defaults(change: Change) -> None:
    new = change.obj
    meta = metadata(new)
    meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name_of(new)}
    if change.old is None:
        new["spec"] = dict(new.get("spec") or {})
        new["status"] = {}
    elif change.subresource != "finalize":
        new["spec"] = dict(change.old.get("spec") or {})
    status = dict(new.get("status") or {})
    if change.subresource != "status" or not status.get("phase"):
        status["phase"] = _expected_phase(meta)
    new["status"] = status


def add_finalizer(namespace: Object) -> None:
    """Adds the finalizer of the namespace controller to a new namespace. No client owns it, unless it sent it."""
    if "resourceVersion" in metadata(namespace):
        return
    sent = namespace["spec"].get("finalizers") or []
    namespace["spec"] = {"finalizers": sent if FINALIZER in sent else [*sent, FINALIZER]}


def mark_terminating(namespace: Object) -> None:
    """Sets the phase to Terminating and removes the grace period, which does not apply to namespaces."""
    namespace["status"] = {**(namespace.get("status") or {}), "phase": _expected_phase(metadata(namespace))}
    metadata(namespace).pop("deletionGracePeriodSeconds", None)


def check(change: Change) -> Iterable[Problem]:
    for index, name in enumerate(change.spec.get("finalizers") or ()):
        # As in Kubernetes, a create reports them without an index.
        path = "spec.finalizers" if change.old is None else f"spec.finalizers[{index}]"
        yield from (Problem.invalid(path, name, fault) for fault in qualified_name_errors(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            yield Problem.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
    phase = (change.obj.get("status") or {}).get("phase")
    expected = _expected_phase(metadata(change.obj))
    if phase != expected:
        reason = f"must be {expected}: the phase follows metadata.deletionTimestamp"
        yield Problem.invalid("status.phase", phase, reason)


def _expected_phase(meta: Object) -> str:
    return "Terminating" if meta.get("deletionTimestamp") else "Active"


NAMESPACE = Kind(
    name="Namespace",
    plural="namespaces",
    namespaced=False,
    group="",
    fields={"spec": SPEC, "status": STATUS},
    description="A scope for names. Deleting a namespace deletes the objects in it.",
    short_names=("ns",),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    status_subresource=True,
    extra_subresources=("finalize",),
    columns=(Column("Status", "status.phase", description="Active, or Terminating while it is being deleted."),),
    selectable=("status.phase",),
    name_is_label=True,
    finalizer_paths=("spec.finalizers", "metadata.finalizers"),
    on_delete=mark_terminating,
    tracks_generation=False,
    builtin=True,
    allows_unconditional_update=True,
    empty_fields={"spec": {}},
    default=set_defaults,
    canonicalize=add_finalizer,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
