"""One object as the view keeps it. Made by the registry's `finish`, read by everybody who reads.

There may be a million of these, so what is the same for many is not kept with each: keys share their first parts, equal
labels are one mapping, and what a key says already is not said again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.storage.contract import Key, Record


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as it is served: its finished JSON, and what selectors look at."""

    key: Key
    revision: int
    body: bytes
    labels: Mapping[str, str]
    selectable: Mapping[str, str]
    """The fields that its kind lets people select by, beside its name and namespace."""
    whole: bytes = b""
    """The JSON with what is never served, where there is such a thing; empty where `body` is all there is."""

    @property
    def fields(self) -> Mapping[str, str]:
        """Everything that a fieldSelector can ask of the object."""
        _, _, namespace, name = self.key
        if namespace:
            return {"metadata.name": name, "metadata.namespace": namespace, **self.selectable}
        return {"metadata.name": name, **self.selectable}


Finish = Callable[[Record], Entry]
