"""storage/view/collection.py: labels and fields are given, or read on first use."""

import gc
from collections.abc import Mapping

from fairlead.storage.view.entry import Entry

KEY = ("g", "things", "ns", "a")
LABELS: Mapping[str, str] = {"team": "red"}
FIELDS: Mapping[str, str] = {"spec.x": "1"}


def test_given_labels_are_not_read() -> None:
    entry = Entry(KEY, 7, b"{}", LABELS, {})
    assert (entry.labels, entry.selectable) == (LABELS, {})


def test_fields_are_read_once_and_on_first_use_only() -> None:
    bodies: list[bytes] = []

    def read_fields(body: bytes) -> tuple[Mapping[str, str], Mapping[str, str]]:
        bodies.append(body)
        return LABELS, FIELDS

    entry = Entry(KEY, 7, b"served", None, None, b"", read_fields)
    assert bodies == []
    assert entry.fields == {"metadata.name": "a", "metadata.namespace": "ns", "spec.x": "1"}
    assert (entry.labels, entry.selectable) == (LABELS, FIELDS)
    assert bodies == [b"served"]


def test_fields_are_read_from_the_full_body() -> None:
    entry = Entry(KEY, 7, b"served", None, None, b"whole", lambda body: ({"read": body.decode()}, {}))
    assert entry.labels == {"read": "whole"}


def test_entries_are_not_tracked_by_the_garbage_collector() -> None:
    entry = Entry(KEY, 7, b"{}", None, None, b"", lambda body: (LABELS, {}))
    assert entry.labels == LABELS
    assert not gc.is_tracked(entry)


def test_with_body_keeps_everything_else() -> None:
    entry = Entry(KEY, 7, b"served", None, None, b"whole", lambda body: ({"read": body.decode()}, {}))
    other = entry.with_body(b"other")
    assert (other.key, other.revision, other.body, other.full_body) == (KEY, 7, b"other", b"whole")
    assert other.labels == {"read": "whole"}
