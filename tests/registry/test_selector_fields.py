"""What selectors look at, read without building the rest: the same as if everything had been built."""

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


def text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@given(
    owner=VALUES,
    peer=VALUES,
    status=VALUES,
    labels=st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)),
)
def test_fields_are_what_stands_at_their_paths_and_nothing_where_nothing_does(
    owner: Any, peer: Any, status: Any, labels: dict[str, str] | None
) -> None:
    obj: Object = {
        "metadata": {"labels": labels},
        "spec": {"owner": owner, "networkPeer": peer, "rest": {"owner": 1}},
        "status": status,
    }
    found, fields = SelectorFieldReader(CLUSTER).read(orjson.dumps(obj))
    assert found == (labels or {})
    assert fields == {path: text(get_path(obj, path)) for path in CLUSTER.selectable}


def test_what_is_missing_reads_as_nothing() -> None:
    assert SelectorFieldReader(APP).read(b"{}") == ({}, dict.fromkeys(APP.selectable, ""))
    assert SelectorFieldReader(None).read(b'{"metadata":{"labels":{"a":"b"}}}') == ({"a": "b"}, {})
    assert SelectorFieldReader(None).read(b'{"spec":{"labels":{"a":"b"}}}') == ({}, {})


def test_objects_with_the_same_labels_and_fields_share_them() -> None:
    glimpse = SelectorFieldReader(APP)
    ones = [
        glimpse.read(b'{"metadata":{"name":"%d","labels":{"a":"b"}},"spec":{"owner":{"user":"u"}}}' % number)
        for number in range(2)
    ]
    assert ones[0][0] is ones[1][0]
    assert ones[0][1] is ones[1][1]
