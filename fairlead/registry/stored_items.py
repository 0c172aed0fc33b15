"""Finds the former version of an item of a list, for the validation walk, which compares values with stored ones."""

from collections.abc import Sequence
from typing import Any

import orjson

from fairlead.core.objects import Object
from fairlead.registry.schema import Schema

ABSENT = object()
"""The previous value where there was none."""


class StoredItems:
    """The stored items of a list. The former version of an item is the one with the same keys, if the list has keys.

    Otherwise it is an equal one, wherever that was, or else the one that was in the same place.
    """

    __slots__ = ("_by_keys", "_encoded", "_items", "_keys")

    def __init__(self, before: Any, schema: Schema) -> None:
        self._items: Sequence[Any] = before if isinstance(before, list) else ()
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
        self._by_keys: dict[bytes, Any] | None = None
        self._encoded: set[bytes] | None = None

    def find(self, item: Any, index: int) -> Any:
        """The former version of an item of the new list; ABSENT if there is none."""
        same_place = self._items[index] if index < len(self._items) else ABSENT
        if not self._items or type(item) is not dict or item == same_place:
            return same_place
        if self._keys:
            if self._by_keys is None:
                self._by_keys = {self._key(each): each for each in self._items if isinstance(each, dict)}
            return self._by_keys.get(self._key(item), ABSENT)
        if self._encoded is None:
            self._encoded = {_encode_sorted(each) for each in self._items}
        return item if _encode_sorted(item) in self._encoded else same_place

    def _key(self, item: Object) -> bytes:
        return _encode_sorted([item.get(name) for name in self._keys])


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same. For Python, `true` is also equal to 1. 1 and 1.0 are one number: Go clients
    write back the former if they have read the latter."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _encode_sorted(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer with more than 64 bits
        return repr(value).encode(errors="surrogatepass")
