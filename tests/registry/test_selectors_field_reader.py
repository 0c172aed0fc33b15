"""registry/selectors.py: SelectorFieldReader reads labels and fields without decoding the whole object."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.objects import Object, get_path
from fairlead.kinds import KINDS
from fairlead.registry.selectors import SelectorFieldReader

APP = next(kind for kind in KINDS if kind.name == "App")
CLUSTER = next(kind for kind in KINDS if kind.name == "Cluster")
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just({"user": "ada"}),
)


def to_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@given(
    owner=VALUES,
    peer=VALUES,
    status=VALUES,
    labels=st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)),
)
def test_fields_are_the_values_at_their_paths_or_empty(
    owner: Any, peer: Any, status: Any, labels: dict[str, str] | None
) -> None:
    obj: Object = {
        "metadata": {"labels": labels},
        "spec": {"owner": owner, "networkPeer": peer, "rest": {"owner": 1}},
        "status": status,
    }
    read_labels, fields = SelectorFieldReader(CLUSTER).read(orjson.dumps(obj))
    assert read_labels == (labels or {})
    assert fields == {path: to_text(get_path(obj, path)) for path in CLUSTER.selectable}


def test_missing_labels_and_fields_are_empty() -> None:
    assert SelectorFieldReader(APP).read(b"{}") == ({}, dict.fromkeys(APP.selectable, ""))
    assert SelectorFieldReader(None).read(b'{"metadata":{"labels":{"a":"b"}}}') == ({"a": "b"}, {})
    assert SelectorFieldReader(None).read(b'{"spec":{"labels":{"a":"b"}}}') == ({}, {})


def test_objects_with_the_same_labels_and_fields_share_them() -> None:
    reader = SelectorFieldReader(APP)
    results = [
        reader.read(b'{"metadata":{"name":"%d","labels":{"a":"b"}},"spec":{"owner":{"user":"u"}}}' % number)
        for number in range(2)
    ]
    assert results[0][0] is results[1][0]
    assert results[0][1] is results[1][1]
