"""Every command block of README.md and docs/ works as it is written, on a real server, or says why it is not run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, list_documents, read_blocks
from tests.docs.script import (
    build_script,
    build_steps,
    choose_ports,
    describe_failure,
    find_wrong_output,
    run_script,
    select_blocks,
)

BLOCKS = {document: read_blocks(document) for document in list_documents()}
RUN = [document for document, blocks in BLOCKS.items() if select_blocks(document, blocks)]
SHORT = ("docs/tutorials/first-hour.md",)
"""What `make test` runs; the others take minutes together."""


def check_document(document: str, folder: Path, kubectl: Path) -> None:
    ports = choose_ports()
    steps = build_steps(select_blocks(document, BLOCKS[document]), folder)
    result = run_script(build_script(steps, ports), folder, kubectl, ports["8443"])
    assert result.returncode == 0, describe_failure(steps, folder, result.stdout)
    wrong = [found for step in steps if (found := find_wrong_output(step))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("document", SHORT)
def test_the_commands_of_a_document_work(document: str, tmp_path: Path, component: Callable[[str], Path]) -> None:
    check_document(document, tmp_path, component("kubectl"))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", [each for each in RUN if each not in SHORT])
def test_the_commands_of_other_documents_work(document: str, tmp_path: Path, component: Callable[[str], Path]) -> None:
    check_document(document, tmp_path, component("kubectl"))


@pytest.mark.parametrize("document", [document for document, blocks in BLOCKS.items() if blocks])
def test_a_block_that_is_not_run_says_why(document: str) -> None:
    blocks = BLOCKS[document]
    assert [f"{block.place}: {block.unknown_comment}" for block in blocks if block.unknown_comment] == []
    for block in blocks:
        if block.run_by:
            test = ROOT / block.run_by
            assert test.exists(), f"{block.place}: there is no {block.run_by}"
            assert Path(document).name in test.read_text(), f"{block.run_by} does not name {document}"
        for prefix in (*block.left_out, *block.exit_codes):
            assert prefix in block.body, f"{block.place}: no command begins with {prefix}"
