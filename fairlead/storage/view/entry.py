"""One object as the view keeps it. Made by the registry's `finish`, read by everybody who reads.

There may be a million of these, so what is the same for many is not kept with each: keys share their first parts, equal
labels are one mapping, and what a key says already is not said again. And what may be put off is: an entry that was
given a `look` instead of labels is read for them only when somebody first asks.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from fairlead.storage.contract import Key, Record

Seen = tuple[Mapping[str, str], Mapping[str, str]]
"""The labels of an object, and the fields that its kind lets people select by, beside its name and namespace."""


def _nothing(body: bytes) -> Seen:
    return {}, {}


class Entry(Struct, gc=False):
    """One object as it is served: its finished JSON, and what selectors look at.

    The garbage collector does not look at these: nothing that they refer to ever refers to an entry. Otherwise it would
    walk over all that were made since the start, in every full round, while the event loop waits.
    """

    key: Key
    revision: int
    body: bytes
    _labels: Mapping[str, str] | None
    _selectable: Mapping[str, str] | None
    """None, both of them, until somebody asks."""
    whole: bytes = b""
    """The JSON with what is never served, where there is such a thing; empty where `body` is all there is."""
    look: Callable[[bytes], Seen] = _nothing
    """Reads labels and fields out of the JSON."""

    @property
    def labels(self) -> Mapping[str, str]:
        labels = self._labels
        return self._seen()[0] if labels is None else labels

    @property
    def selectable(self) -> Mapping[str, str]:
        selectable = self._selectable
        return self._seen()[1] if selectable is None else selectable

    def _seen(self) -> Seen:
        self._labels, self._selectable = seen = self.look(self.whole or self.body)
        return seen

    def with_body(self, body: bytes) -> "Entry":
        """The same object, served in another form."""
        return Entry(self.key, self.revision, body, self._labels, self._selectable, self.whole, self.look)

    @property
    def fields(self) -> Mapping[str, str]:
        """Everything that a fieldSelector can ask of the object."""
        _, _, namespace, name = self.key
        if namespace:
            return {"metadata.name": name, "metadata.namespace": namespace, **self.selectable}
        return {"metadata.name": name, **self.selectable}


Finish = Callable[[Record], Entry]
