"""fairlead.cli.resources.any_kind: objects from files, folders and stdin."""

import io
import sys
from pathlib import Path

import pytest

from fairlead.cli.resources.any_kind import read_manifests
from fairlead.cli.ui.session import UsageError

APP = "apiVersion: management.service.sh/v1\nkind: App\nmetadata: {name: %s}\n"


def read_labels(*paths: Path | str, recursive: bool = False) -> list[str]:
    return [each.label for each in read_manifests([str(path) for path in paths], recursive)]


def test_a_file_has_any_number_of_documents(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"# a comment\n---\n{APP % 'one'}---\n---\n# nothing\n--- # two\n{APP % 'two'}")
    assert read_labels(file) == ["app/one", "app/two"]


def test_json_and_lists_count_as_their_objects(tmp_path: Path) -> None:
    one, two = ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("one", "two"))
    file = tmp_path / "list.json"
    file.write_text(str({"apiVersion": "v1", "kind": "List", "items": [one, two]}).replace("'", '"'))
    assert read_labels(file) == ["configmap/one", "configmap/two"]
    file.write_text(str([two, one]).replace("'", '"'))
    assert read_labels(file) == ["configmap/two", "configmap/one"]


def test_a_folder_has_files_and_with_recursive_also_those_of_its_folders(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "notes.txt", "more/c.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(APP % path.stem)
    assert read_labels(tmp_path) == ["app/a", "app/b"]
    assert read_labels(tmp_path, recursive=True) == ["app/a", "app/b", "app/c"]


def test_objects_are_read_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((APP % "one").encode())))
    assert read_labels("-") == ["app/one"]


def test_what_others_refer_to_comes_first(tmp_path: Path) -> None:
    kinds = ("SpaceInstance", "DevPodWorkspacePreset", "SpaceTemplate", "App", "Project", "Cluster", "User")
    documents = (f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n" for kind in kinds)
    (tmp_path / "all.yaml").write_text("---\n".join(documents))
    expected = ["user/x", "cluster/x", "project/x", "spacetemplate/x", "devpodworkspacepreset/x"]
    assert read_labels(tmp_path) == [*expected, "spaceinstance/x", "app/x"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f"{APP % 'one'}---\nkind: [App\nb: c\n", "yaml: line 6: did not find expected ',' or ']'"),
        ("a: 1\na: 2\n", "the field a is there twice"),
        ("just text", "it needs apiVersion and kind"),
        ("kind: App", "it needs apiVersion and kind"),
        ("apiVersion: v1\nkind: ConfigMap\n", "ConfigMap has no metadata.name"),
        ("# nothing", "no objects found"),
        ("{", "all.yaml: "),
    ],
)
def test_an_unusable_file_is_a_usage_error(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "all.yaml").write_text(content)
    with pytest.raises(UsageError) as caught:
        read_manifests([str(tmp_path / "all.yaml")], recursive=False)
    assert problem in str(caught.value)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_manifests([str(tmp_path / "none.yaml")], recursive=False)
