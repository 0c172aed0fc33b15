"""A table of the tests on the real cluster: a row for each test, with the figures that it measured."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """`note` is called by tests, `finish` by pytest when a test is over, `lines` in the end."""

    rows: dict[str, tuple[str, float]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def note(self, test: str, text: str) -> None:
        self.notes.setdefault(test, []).append(text)

    def finish(self, test: str, outcome: str, seconds: float) -> None:
        """A test whose setup or teardown failed has failed, whatever its own outcome."""
        before, spent = self.rows.get(test, ("passed", 0.0))
        self.rows[test] = (outcome if before == "passed" else before), spent + seconds

    def lines(self) -> Iterable[str]:
        titles = {test: describe_test(test) for test in self.rows}
        width = max(map(len, titles.values()), default=0)
        for test, (outcome, seconds) in self.rows.items():
            mark = {"passed": "ok  ", "skipped": "skip"}.get(outcome, "FAIL")
            notes = "; ".join(self.notes.get(test, ()))
            yield f"{mark} {seconds:6.1f} s  {titles[test]:{width}}  {notes}".rstrip()


def describe_test(node_id: str) -> str:
    """`tests/reference/test_exec.py::test_output_is_whole[5]` is `exec: output is whole [5]`."""
    file, _, test = node_id.rpartition("/")[2].partition("::")
    name, bracket, parameter = test.removeprefix("test_").partition("[")
    subject = file.removeprefix("test_").removesuffix(".py").replace("_", " ")
    return f"{subject}: {name.replace('_', ' ')}" + (f" [{parameter}" if bracket else "")
