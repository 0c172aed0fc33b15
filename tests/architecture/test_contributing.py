"""The diffs that CONTRIBUTING.md shows are those of this tree."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "CONTRIBUTING.md"
KNOWN = {
    "fairlead/kinds/clusters/cluster.py",
    "fairlead/features/clusters.py",
    "fairlead/features/core_objects.py",
    "fairlead/features/projects.py",
    "fairlead/settings/declarations.py",
    "fairlead/cli/__init__.py",
    "fairlead/cli/examples.py",
}


def read_hunks(document: str) -> Iterator[tuple[str, str]]:
    """The file and the resulting lines of each hunk in a diff. `@@` is between the hunks of a file."""
    for block in re.findall(r"^```diff\n(.*?)^```$", document, re.MULTILINE | re.DOTALL):
        for part in block.split("+++ ")[1:]:
            file, _, lines = part.partition("\n")
            for hunk in lines.split("@@\n"):
                yield file, "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in "+ ")


def find_untrue(document: str) -> list[str]:
    """The files that do not have a hunk as it is shown."""
    return [
        file for file, hunk in read_hunks(document) if not hunk.strip() or f"\n{hunk}" not in (ROOT / file).read_text()
    ]


def test_the_diffs_are_true() -> None:
    text = GUIDE.read_text()
    assert find_untrue(text) == []
    assert {file for file, _ in read_hunks(text)} == KNOWN


@pytest.mark.parametrize(
    "changed",
    [
        ("EventTtlController(leader.registry, settings.event_ttl)", "EventTtlController(leader.registry)"),
        ("             Phase.CHECK: (\n", "             Phase.FINISH: (\n"),
        ('+    "whoami": (', '+    "whoareyou": ('),
    ],
)
def test_a_diff_that_is_not_true_is_found(changed: tuple[str, str]) -> None:
    text = GUIDE.read_text()
    assert changed[0] in text
    assert len(find_untrue(text.replace(*changed))) == 1
