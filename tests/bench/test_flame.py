"""Tests of `bench/flame.py`: the flame graph of requests."""

from bench.flame import draw_stacks, parse_stacks

RAW = """main;Front.__call__ (a.py:1);serve (b.py:2) 30
main;Front.__call__ (a.py:9);<audit> (c.py:3) 10
main;idle (d.py:4) 60
"""


def test_frames_are_counted_below_the_first_of_a_request() -> None:
    root = parse_stacks(RAW)
    assert root.samples == 40
    (front,) = root.calls.values()
    assert {name: call.samples for name, call in front.calls.items()} == {"serve": 30, "<audit>": 10}


def test_a_frame_is_as_wide_as_its_share_and_its_name_is_text() -> None:
    svg = draw_stacks(parse_stacks(RAW))
    assert 'width="900.0"' in svg and 'width="300.0"' in svg
    assert "&lt;audit&gt;: 25.0%" in svg and "idle" not in svg


def test_an_empty_profile_has_no_frames() -> None:
    assert "<rect" not in draw_stacks(parse_stacks(""))
