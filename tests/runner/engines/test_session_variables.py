"""`remoteEnv` of a configuration, as sessions get it: what a repository can make of its variables."""

import pytest

from fairlead.runner.engines.devcontainer.session_environment import MAX_TOTAL, MAX_VALUE, resolve_variables

REFERENCE = "${containerEnv:A}"


def test_references_are_to_variables_of_the_container_or_defaults() -> None:
    remote = {"B": f"<{REFERENCE}:${{containerEnv:C:none}}:${{containerEnv:C}}:${{containerEnv:A", "no name": "x"}
    assert resolve_variables(remote, {"A": "a"}) == {"B": "<a:none::${containerEnv:A"}


def test_a_variable_that_becomes_too_long_is_left_out() -> None:
    longest = {"B": REFERENCE + "b" * (MAX_VALUE - len(REFERENCE))}
    room = "a" * len(REFERENCE)
    assert resolve_variables(longest, {"A": room}) == {"B": room + longest["B"][len(REFERENCE) :]}
    assert resolve_variables({**longest, "C": "c"}, {"A": f"{room}a"}) == {"C": "c"}
    several = {f"B{number}": "b" * MAX_VALUE for number in range(10)}
    assert len(resolve_variables(several, {})) == MAX_TOTAL // MAX_VALUE


def test_many_references_to_a_long_variable_need_no_more_memory_than_a_variable_may_have() -> None:
    """Two thousand to one of 128 KiB are 256 MiB, in each of the variables."""
    read: list[int] = []

    class LongVariable(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override]
            read.append(1)
            return "a" * (128 << 10)

    assert resolve_variables({"B": REFERENCE * 1900}, LongVariable()) == {}
    assert len(read) == 1


@pytest.mark.timeout(300)
def test_references_without_an_end_are_read_in_time() -> None:
    remote = {f"B{number}": "${containerEnv:a:" * 1900 for number in range(60)}
    assert resolve_variables(remote, {}).keys() <= remote.keys()
