"""The picture of a profile: as wide as it was seen, and only of requests."""

from bench.flame import drawn, stacks

RAW = """main;Front.__call__ (a.py:1);serve (b.py:2) 30
main;Front.__call__ (a.py:9);<audit> (c.py:3) 10
main;idle (d.py:4) 60
"""


def test_frames_are_counted_below_the_first_of_a_request() -> None:
    root = stacks(RAW)
    assert root.samples == 40
    (front,) = root.calls.values()
    assert {name: call.samples for name, call in front.calls.items()} == {"serve": 30, "<audit>": 10}


def test_a_frame_is_as_wide_as_its_share_and_its_name_is_text() -> None:
    picture = drawn(stacks(RAW))
    assert 'width="900.0"' in picture and 'width="300.0"' in picture
    assert "&lt;audit&gt;: 25.0%" in picture and "idle" not in picture


def test_nothing_is_drawn_of_nothing() -> None:
    assert "<rect" not in drawn(stacks(""))
