"""The figures of the console: how frames are counted, and how the table is put into a document."""

import pytest

from bench.console import BEGIN, END, Memory, describe_frames, describe_growth, measure_bytes, replace_table


def test_a_frame_that_takes_the_time_of_three_counts_as_two_dropped_ones() -> None:
    found = {"intervals": [16.7] * 7 + [50.0], "longTasks": [70.4]}
    expected = "2 of 10 frames dropped (20.0 %); p99 between frames 50 ms; 1 tasks over 50 ms, longest 70 ms"
    assert describe_frames(found) == expected


def test_frames_in_time_are_none_dropped() -> None:
    assert describe_frames({"intervals": [16.6, 16.8], "longTasks": []}).startswith("0 of 2 frames dropped (0.0 %)")


def test_growth_is_in_percent_of_the_heap() -> None:
    assert describe_growth(Memory(200, 1, 1), Memory(210, 1, 1)) == "heap +5.0 %"


def test_bytes_are_those_of_the_shipped_files() -> None:
    assert [name for name, _ in measure_bytes()] == ["all files, source", "all files, as sent"]


def test_the_table_replaces_what_is_between_the_marks() -> None:
    document = f"a\n{BEGIN}\nold\n{END}\nb\n"
    table = "| what | measured |\n|---|---|\n| x | 1 |"
    assert replace_table(document, [("x", "1")]) == f"a\n{BEGIN}\n\n{table}\n\n{END}\nb\n"
    with pytest.raises(ValueError, match="has no lines"):
        replace_table("a", [])
