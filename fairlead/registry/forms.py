"""One store, two API groups: objects of a kind in the form of another kind (`Kind.form`).

Event of `events.k8s.io/v1` is Event of `v1` with other names for its fields. What is read is converted on its way out
of the view, what is written on its way into the store; everything in between (validation, patches, apply, tables) works
on the form that the client asked for. Kinds without a second form pass through here untouched.
"""

import orjson

from fairlead.core.objects import Object
from fairlead.registry.kind import Kind
from fairlead.storage.view import Entry


def as_stored(kind: Kind, obj: Object) -> Object:
    """An object of the kind as it goes into the store."""
    form = kind.form
    if form is None:
        return obj
    return {**form.store(obj), "apiVersion": form.of.api_version, "kind": form.of.name, "metadata": obj["metadata"]}


def show_body(kind: Kind, body: bytes) -> bytes:
    """The JSON of a stored object as the kind shows it."""
    form = kind.form
    if form is None:
        return body
    obj = orjson.loads(body)
    types = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": obj["metadata"]}
    return orjson.dumps(types | form.show(obj) | types)


def show_entry(kind: Kind, entry: Entry) -> Entry:
    """An entry as the kind shows it. Selectors look at the stored form, so they are asked before."""
    return entry if kind.form is None else entry.with_body(show_body(kind, entry.body))
