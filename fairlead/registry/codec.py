"""Objects as the store keeps them, and as they are served.

A stored value begins with apiVersion, kind and metadata and carries no resourceVersion: the store's revision is the
version. It is spliced in once, right after `"metadata":{`, when the view takes the record in.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import orjson

from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.registry.secret_fields import without_hidden
from fairlead.registry.selector_fields import Glimpse
from fairlead.storage.contract import Record
from fairlead.storage.view.view import Entry

_METADATA = b'"metadata":{'
_LAST_APPLIED_MARK = LAST_APPLIED.encode()
_OWN_MARK = b'"service.sh/'
"""What objects that are the server's own are told by; others may have it, too."""


def encode(obj: Object) -> bytes:
    """The stored form of an object."""
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"]}
    ordered.update(obj)
    metadata = ordered["metadata"]
    if "resourceVersion" in metadata:
        ordered["metadata"] = kept = dict(metadata)
        del kept["resourceVersion"]
    return orjson.dumps(ordered)


def stamped(value: bytes, revision: int) -> bytes:
    """The served form: the stored one with its resourceVersion."""
    at = value.index(_METADATA) + len(_METADATA)
    return b"".join((value[:at], b'"resourceVersion":"%d",' % revision, value[at:]))


def restamped(entry: Entry, revision: int) -> bytes:
    """An object's last state under the revision of its end, as DELETED events carry it."""
    return entry.body.replace(b'"resourceVersion":"%d"' % entry.revision, b'"resourceVersion":"%d"' % revision, 1)


def decode(entry: Entry) -> Object:
    """The object with its hidden fields, to be read or changed by the caller alone. It never leaves the server so."""
    obj: Object = orjson.loads(entry.whole or entry.body)
    return obj


def served(kind: Kind, body: bytes) -> bytes:
    """The answer that an object makes: without its hidden fields, also where kubectl has written them down again."""
    for mark in _marks(kind.hidden, bool(kind.secret)):
        if mark in body:
            obj = orjson.loads(body)
            return orjson.dumps(without_hidden(obj, kind)) if kind.hidden_in(obj) else body
    return body


def shown_once(body: bytes, once: Mapping[str, str]) -> bytes:
    """An answer with what only it has: a new key, which nobody can read again."""
    if not once:
        return body
    obj: Object = orjson.loads(body)
    for path, value in once.items():
        *way, name = path.split(".")
        holder = obj
        for step in way:
            holder = holder.setdefault(step, {})
        holder[name] = value
    return orjson.dumps(obj)


@lru_cache
def _marks(hidden: tuple[str, ...], secret: bool) -> tuple[bytes, ...]:
    """Of which the JSON of an object with such a field must hold one."""
    if not hidden:
        return (_OWN_MARK,) if secret else ()
    names = dict.fromkeys(path.rpartition(".")[2] for path in hidden)
    return (*(b'"%b":' % name.encode() for name in names), _LAST_APPLIED_MARK)


def finisher(catalog: Catalog) -> Callable[[Record], Entry]:
    """What the view turns records into entries with."""
    glimpses: dict[tuple[str, str], tuple[Kind | None, Glimpse]] = {}

    def finish(record: Record) -> Entry:
        resource = record.key[0], record.key[1]
        known = glimpses.get(resource)
        if known is None:
            served_as = catalog.resource(*resource)
            known = glimpses[resource] = served_as, Glimpse(served_as)
        kind, glimpse = known
        whole = stamped(record.value, record.revision)
        body = served(kind, whole) if kind is not None else whole
        return Entry(record.key, record.revision, body, None, None, b"" if body is whole else whole, glimpse.read)

    return finish


# DOC-MERGED registry/forms
# One store, two API groups: objects of a kind in the form of another kind (`Kind.form`).
#
# Event of `events.k8s.io/v1` is Event of `v1` with other names for its fields. What is read is converted on its way out
# of the view, what is written on its way into the store; everything in between (validation, patches, apply, tables) works
# on the form that the client asked for. Kinds without a second form pass through here untouched.


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
