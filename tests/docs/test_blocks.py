"""The harness for commands in documents: the blocks that it finds, their comments, and that it notices failures."""

from pathlib import Path

import pytest

from tests.docs.blocks import Block, Command, read_blocks
from tests.docs.script import Step, build_script, find_wrong_output, run_script

PAGE = """# Title

<!-- run first:
echo prepared
-->

```console
$ echo one \\
    two
one two
$ cat <<END
three
END
three
```

<!-- not run: it needs a cluster -->
```sh
kubectl get pods
```

<!-- not run `fairlead audit --follow`: it does not end -->
<!-- exit code 1 -->
```console
$ fairlead audit --follow
$ false
```

- item

  <!-- run by tests/cli/test_readme.py -->
  ```console
  $ make up
  ```

```yaml
kind: App
```

```
$ echo bare
```
"""


def test_blocks_are_found_with_their_comments() -> None:
    setup, echo, pods, audit, item, bare = read_blocks("page.md", PAGE)
    assert setup.is_setup and setup.body == "echo prepared\n"
    assert echo.commands() == [
        Command("echo one \\\n    two", ("one two",)),
        Command("cat <<END\nthree\nEND", ("three",)),
    ]
    assert (pods.not_run, pods.line) == ("it needs a cluster", 18)
    assert audit.left_out == {"fairlead audit --follow": "it does not end"} and audit.exit_code == 1
    assert audit.commands() == [Command("false")]
    assert item.run_by == "tests/cli/test_readme.py" and item.commands() == [Command("make up")]
    assert bare.commands() == [Command("echo bare")]


def test_a_comment_with_a_typing_error_is_not_ignored() -> None:
    (block,) = read_blocks("page.md", "<!-- not run, needs root -->\n```sh\nls\n```\n")
    assert block.unknown_comment == "not run, needs root"


def run_blocks(tmp_path: Path, text: str) -> tuple[int, list[Step]]:
    steps = [
        Step(block, command, tmp_path / f"{number}.out")
        for number, (block, command) in enumerate(
            (block, command) for block in read_blocks("page.md", text) for command in block.commands()
        )
    ]
    result = run_script(build_script(steps, {"8443": "1", "9443": "2"}), tmp_path, Path("/usr/bin/true"), "1")
    return result.returncode, steps


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```console\n$ X=1\n$ test $X = 1\n```\n", 0),
        ("```console\n$ false\n$ true\n```\n", 1),
        ("```sh\nfalse\ntrue\n```\n", 1),
        ("```sh\nfalse | true\n```\n", 1),
        ("<!-- exit code 1 -->\n```console\n$ true\n$ false\n```\n", 0),
        ("<!-- exit code 1 -->\n```console\n$ true\n```\n", 1),
        ("<!-- run in another terminal until up -->\n```sh\necho up; sleep 100\n```\n```sh\ntrue\n```\n", 0),
    ],
)
def test_the_first_command_that_fails_ends_the_script(tmp_path: Path, text: str, code: int) -> None:
    assert run_blocks(tmp_path, text)[0] == code


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [("a   b", True), ("a b c", False), ("...", True), ("9s left", True), ("a ...", True), ("other", False)],
)
def test_the_output_in_a_document_is_compared(tmp_path: Path, shown: str, is_right: bool) -> None:
    output = tmp_path / "0.out"
    output.write_text("a b\n12m left\n")
    step = Step(Block("page.md", 1, "console", ""), Command("x", (shown,)), output)
    assert (find_wrong_output(step) is None) == is_right
