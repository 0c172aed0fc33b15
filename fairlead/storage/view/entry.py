"""One object in the view. Built by the registry.

There may be a million entries, so memory matters: keys share their parts, equal labels share one mapping, and nothing
is stored twice. Parsing is lazy: an entry with `read_fields` instead of labels is parsed when they are first needed.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from fairlead.storage.contract import Key, Record

SelectorFields = tuple[Mapping[str, str], Mapping[str, str]]
"""The labels of an object, and its kind's selectable fields other than name and namespace."""


def _no_fields(body: bytes) -> SelectorFields:
    return {}, {}


class Entry(Struct, gc=False):
    """One object: its encoded JSON, and the fields that selectors need.

    Excluded from garbage collection, because nothing it references ever references an entry. Otherwise every full
    collection would traverse all entries while the event loop waits.
    """

    key: Key
    revision: int
    body: bytes
    _labels: Mapping[str, str] | None
    _selectable: Mapping[str, str] | None
    """Both are None until first needed."""
    full_body: bytes = b""
    """The JSON including write-only fields, if there are any; otherwise empty, and `body` is complete."""
    read_fields: Callable[[bytes], SelectorFields] = _no_fields
    """Parses labels and selectable fields from the JSON."""

    @property
    def labels(self) -> Mapping[str, str]:
        labels = self._labels
        return self._load_fields()[0] if labels is None else labels

    @property
    def selectable(self) -> Mapping[str, str]:
        selectable = self._selectable
        return self._load_fields()[1] if selectable is None else selectable

    def _load_fields(self) -> SelectorFields:
        self._labels, self._selectable = fields = self.read_fields(self.full_body or self.body)
        return fields

    def with_body(self, body: bytes) -> "Entry":
        """The same object with another encoding."""
        return Entry(self.key, self.revision, body, self._labels, self._selectable, self.full_body, self.read_fields)

    @property
    def fields(self) -> Mapping[str, str]:
        """All fields that a fieldSelector can match."""
        _, _, namespace, name = self.key
        if namespace:
            return {"metadata.name": name, "metadata.namespace": namespace, **self.selectable}
        return {"metadata.name": name, **self.selectable}


EntryBuilder = Callable[[Record], Entry]
