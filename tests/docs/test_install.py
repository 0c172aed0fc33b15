"""Nothing tells users to install the package by its name, which belongs to another project on the package index."""

import re

import pytest

from fairlead import __version__
from tests.docs.blocks import ROOT

TEXTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*", "fairlead/**/*.py", "scripts/*", "Makefile", "Containerfile")
    for path in sorted(ROOT.glob(pattern))
    if path.is_file()
]
BY_NAME = re.compile(
    r"""(?:pipx?|uv(?:\ tool)?)\ (?:install|upgrade|run)  # a command of an installer
        (?:\ +-[^\s'"`]+)*                                 # its flags
        \ +['"]?fairlead(?![-\w./])                        # the bare name, with or without extras and a version
    """,
    re.VERBOSE,
)
WARNINGS = ("pip install --upgrade fairlead` takes that",)
"""What documents say that users should not do."""
WHEEL = re.compile(r"dist/fairlead-([\d.]+)-py3-none-any\.whl")


@pytest.mark.parametrize(
    "command",
    [
        "pipx install fairlead",
        "uv tool install fairlead ",
        "pipx install --force 'fairlead[etcd]'",
        "pip install -U fairlead==0.2.0",
        "pipx upgrade fairlead",
    ],
)
def test_an_installation_by_name_is_found(command: str) -> None:
    assert BY_NAME.search(command)


def test_no_text_installs_the_package_by_its_name() -> None:
    found = []
    for path in TEXTS:
        text = path.read_text(errors="replace")
        for warning in WARNINGS:
            text = text.replace(warning, "")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in BY_NAME.finditer(text)]
    assert found == []


@pytest.mark.parametrize("document", ["docs/install.md", "docs/tutorials/first-hour.md"])
def test_the_file_to_install_is_that_of_this_version(document: str) -> None:
    versions = WHEEL.findall((ROOT / document).read_text())
    assert versions and set(versions) == {__version__}
