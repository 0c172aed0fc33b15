"""Records which manager owns which field after a write: `patching/managed_fields.py`, with the rules of the write."""

from fairlead.core.objects import Object, metadata
from fairlead.registry.kind import Change
from fairlead.registry.patching.managed_fields import FieldManager, keep_unchanged_entries, record_apply, record_update
from fairlead.registry.patching.merge_schema import MergeSchemas
from fairlead.registry.write_options import WriteOptions

_CLIENT_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""The parts of metadata that managers can own."""


def record_ownership(change: Change, options: WriteOptions, manager: FieldManager, schemas: MergeSchemas) -> None:
    """Sets the managedFields of the new object, and brings it into its stored form."""
    kind, obj = change.kind, change.obj
    if options.is_apply:
        record_apply(obj)
    elif change.is_untracked:
        metadata(obj).pop("managedFields", None)
    else:
        written = _as_sent(change)
        shape = schemas.by_subresource[options.subresource]
        record_update(change.old, written, shape, manager, kind.empty_fields, is_custom=not kind.builtin)
        if written is not obj:
            _copy_entries(written, obj)
    if kind.canonicalize is not None:
        kind.canonicalize(obj)
    if options.is_apply or kind.canonicalize is not None:
        keep_unchanged_entries(change.old, obj)


def _as_sent(change: Change) -> Object:
    """The object whose fields the writer owns. As in Kubernetes, a write of /status owns the metadata that it sends,
    although it does not change it."""
    obj, sent = change.obj, change.sent_metadata
    if sent is None or all(sent.get(name) == metadata(obj).get(name) for name in _CLIENT_METADATA):
        return obj
    meta = {name: value for name, value in metadata(obj).items() if name not in _CLIENT_METADATA}
    meta |= {name: sent[name] for name in _CLIENT_METADATA if sent.get(name)}
    return {**obj, "metadata": meta}


def _copy_entries(source: Object, target: Object) -> None:
    entries = metadata(source).get("managedFields")
    metadata(target).pop("managedFields", None)
    if entries:
        metadata(target)["managedFields"] = entries
