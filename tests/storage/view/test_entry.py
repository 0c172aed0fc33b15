"""Labels and fields of an entry: given with it, or read when somebody first asks."""

import gc
from collections.abc import Mapping

from fairlead.storage.view.entry import Entry

KEY = ("g", "things", "ns", "a")
LABELS: Mapping[str, str] = {"team": "red"}
FIELDS: Mapping[str, str] = {"spec.x": "1"}


def test_what_was_given_is_not_looked_for() -> None:
    entry = Entry(KEY, 7, b"{}", LABELS, {})
    assert (entry.labels, entry.selectable) == (LABELS, {})


def test_an_entry_is_looked_at_once_and_only_when_asked() -> None:
    looked: list[bytes] = []

    def look(body: bytes) -> tuple[Mapping[str, str], Mapping[str, str]]:
        looked.append(body)
        return LABELS, FIELDS

    entry = Entry(KEY, 7, b"served", None, None, b"", look)
    assert looked == []
    assert entry.fields == {"metadata.name": "a", "metadata.namespace": "ns", "spec.x": "1"}
    assert (entry.labels, entry.selectable) == (LABELS, FIELDS)
    assert looked == [b"served"]


def test_hidden_fields_are_looked_at_as_well() -> None:
    entry = Entry(KEY, 7, b"served", None, None, b"whole", lambda body: ({"read": body.decode()}, {}))
    assert entry.labels == {"read": "whole"}


def test_the_garbage_collector_has_nothing_to_do_with_entries() -> None:
    entry = Entry(KEY, 7, b"{}", None, None, b"", lambda body: (LABELS, {}))
    assert entry.labels == LABELS
    assert not gc.is_tracked(entry)


def test_another_form_keeps_everything_else() -> None:
    entry = Entry(KEY, 7, b"served", None, None, b"whole", lambda body: ({"read": body.decode()}, {}))
    other = entry.with_body(b"other")
    assert (other.key, other.revision, other.body, other.full_body) == (KEY, 7, b"other", b"whole")
    assert other.labels == {"read": "whole"}
