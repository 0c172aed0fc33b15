"""Builds of images, with a script in place of podman that notes how it is run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.devcontainer.inside import builds
from fairlead.runner.engines.devcontainer.inside.build_key import Build
from fairlead.runner.engines.devcontainer.inside.pulls import PullFailed
from fairlead.runner.engines.devcontainer.inside.run_options import Refused

PODMAN = """#!/usr/bin/env python3
import json, os, sys
folder = os.path.dirname(__file__)
arguments = sys.argv[1:]
with open(f"{folder}/calls", "a") as file:
    file.write(json.dumps(arguments) + "\\n")
images = json.load(open(f"{folder}/images"))
remote = json.load(open(f"{folder}/remote"))
match arguments:
    case ["image", "inspect" | "exists" as command, name]:
        if name not in images:
            sys.exit(1)
        if command == "inspect":
            print(json.dumps([images[name]]))
    case ["pull", _, name]:
        if name not in remote:
            print(f"Trying to pull {name}...\\nError: {name}: no such host", file=sys.stderr)
            sys.exit(125)
        images[name] = remote[name]
    case ["load", *_, archive]:
        images[open(archive).read()] = {"Id": "loaded"}
    case ["tag", source, *names]:
        images.update(dict.fromkeys(names, images[source]))
    case ["build", *_]:
        if os.path.exists(f"{folder}/broken"):
            sys.exit(3)
        images.update(dict.fromkeys(["x", "y"], {"Id": "built"}))
json.dump(images, open(f"{folder}/images", "w"))
"""


@dataclass(frozen=True, slots=True)
class Podman:
    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder / "podman")

    @property
    def images(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "images").read_text()))

    @property
    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return [" ".join(json.loads(line)[:2]) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def announced(self) -> list[str]:
        """What the runner was told in the last build."""
        log = self.folder / "announced"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def named(self) -> list[str]:
        """The keys of images that have the name by which the runner saves them."""
        return [name.partition(":")[2] for name in self.images if name.startswith(f"{builds.SHARED}:")]

    def set_images(self, images: Mapping[str, Any], remote: Mapping[str, Any]) -> None:
        (self.folder / "images").write_text(json.dumps(images))
        (self.folder / "remote").write_text(json.dumps(remote))

    def run(self, *arguments: str, is_shared: bool = True) -> int:
        for name in ("calls", "announced"):
            (self.folder / name).unlink(missing_ok=True)
        settings = {
            "podman": self.path,
            "is_shared": is_shared,
            "build": ["--network=host"],
            "work_folder": str(self.folder),
        }
        return builds.run_build(arguments, settings)


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podman:
    podman = Podman(tmp_path)
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    podman.set_images({"debian": {"Id": "sha256:1"}}, {"alpine": {"Id": "sha256:2"}})
    (tmp_path / "cache").mkdir()
    (tmp_path / "context").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    monkeypatch.setattr(builds, "CACHE", str(tmp_path / "cache"))

    def announce(key: str | None) -> bool:
        calls = tmp_path / "calls"
        is_early = not calls.exists() or "build" not in calls.read_text()
        with (tmp_path / "announced").open("a") as file:
            file.write(f"{key if is_early else 'too late'}\n")
        return (tmp_path / "awaited").exists()

    monkeypatch.setattr(builds, "announce", announce)
    return podman


def list_arguments(podman: Podman, *options: str) -> list[str]:
    return ["-f", f"{podman.folder}/Dockerfile", "-t", "x", "-t", "y", *options, f"{podman.folder}/context"]


def find_key(podman: Podman, *options: str) -> str | None:
    build = builds.parse_build(list_arguments(podman, *options))
    return None if build is None else builds.find_key(build, podman.path)


def test_the_command_line_of_the_cli_is_understood() -> None:
    arguments = ["--no-cache", "--build-arg", "A=b=c", "--target", "x", "-f", "/D", "-t", "v", "--label", "l=1", "/c"]
    options = ["--no-cache", "--target=x", "--label=l=1"]
    assert builds.parse_build(arguments) == Build("/D", "/c", ["v"], {"A": "b=c"}, options)
    long = builds.parse_build(["-f", "/D", "--target=x", "--build-arg=A=b", "/c"])
    assert long == Build("/D", "/c", [], {"A": "b"}, ["--target=x"])


@pytest.mark.parametrize(
    "options",
    [
        *(["--from=alpine"], ["--from", "alpine"], ["--volume", "/ws:/x"], ["-v", "/ws:/x"], ["--env", "A=b"]),
        *(["--build-context=x=/ws"], ["--ignorefile", "/ws/i"], ["--secret", "id=a"], ["--squash"], ["--layers=false"]),
        *(["--file=/other"], ["-f=/other"], ["-f/other"], ["--tag=z"], ["-tz"], ["-"], ["--"], ["--pull=always"]),
        *(["--build-arg", "HOME"], ["--build-arg=HOME"], ["--platform", "linux/arm64"], ["--platform=linux/arm64"]),
        *(["--no-cache=true"], ["--pull"], ["--cache-from", "registry.example.com/c"]),
        ["--cache-from=registry.example.com/c"],
    ],
    ids=" ".join,
)
def test_a_build_with_options_that_may_change_its_result_in_other_ways_is_not_shared(
    podman: Podman, options: list[str]
) -> None:
    assert find_key(podman, *options) is None
    assert podman.run(*list_arguments(podman, *options)) == 0
    assert (podman.calls[-1].split()[0], podman.named, podman.announced) == ("build", [], ["None"])


def test_builds_with_different_images_arguments_or_texts_have_different_keys(podman: Podman) -> None:
    keys = [
        find_key(podman),
        find_key(podman, "--target", "a"),
        find_key(podman, "--target", "b"),
        find_key(podman, "--build-arg", "A=b"),
        find_key(podman, "--build-arg", "A="),
        find_key(podman, "--label", "a=b"),
    ]
    podman.set_images({"debian": {"Id": "sha256:3"}}, {})
    keys.append(find_key(podman))
    (podman.folder / "Dockerfile").write_text("FROM debian\nRUN make\n")
    keys.append(find_key(podman))
    assert None not in keys and len(set(keys)) == len(keys)
    assert find_key(podman) == keys[-1]


def test_an_image_that_is_missing_is_pulled_first(podman: Podman) -> None:
    (podman.folder / "Dockerfile").write_text("FROM alpine\n")
    assert find_key(podman) is not None
    assert podman.calls == ["image inspect", "pull --quiet", "image inspect"]


@pytest.mark.parametrize("text", ["FROM unknown\n", "FROM debian\nCOPY --from=unknown / /x\n"])
def test_a_build_that_fails_without_its_image_says_why_that_cannot_be_pulled(podman: Podman, text: str) -> None:
    podman.set_images({"debian": {"Id": "sha256:1", "Config": None}}, {})
    (podman.folder / "Dockerfile").write_text(text)
    assert podman.run(*list_arguments(podman)) == 0, "podman may not need it"
    assert (podman.named, podman.announced) == ([], ["None"])
    (podman.folder / "broken").touch()
    with pytest.raises(PullFailed, match=r"^the image unknown cannot be pulled: unknown: no such host$"):
        podman.run(*list_arguments(podman))


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian\nADD https://example.com/x /x\n",
        "FROM debian\nRUN <<EOF\nEOF\n",
        "FROM on-build\n",
        "FROM debian\nCOPY --from=on-build / /x\n",
    ],
)
def test_a_build_that_is_not_understood_is_not_shared(podman: Podman, text: str) -> None:
    on_build = {"Id": "sha256:4", "Config": {"OnBuild": ["ADD https://example.com/x /x"]}}
    podman.set_images({"debian": {"Id": "sha256:1", "Config": None}, "on-build": on_build}, {})
    (podman.folder / "Dockerfile").write_text(text)
    assert find_key(podman) is None


def test_a_dockerfile_that_podman_preprocesses_is_not_shared(podman: Podman) -> None:
    """To the preprocessor, what looks like a comment includes a file."""
    text = '#include "other"\nFROM debian\n'
    (podman.folder / "Dockerfile").write_text(text)
    assert find_key(podman) is not None
    (podman.folder / "Dockerfile.in").write_text(text)
    build = Build(f"{podman.folder}/Dockerfile.in", f"{podman.folder}/context", ["x"])
    assert builds.find_key(build, podman.path) is None
    (podman.folder / "Dockerfile").unlink()
    (podman.folder / "Dockerfile").symlink_to("Dockerfile.in")
    assert find_key(podman) is None


def test_a_dockerfile_that_cannot_be_read_as_a_whole_is_not_shared(podman: Podman) -> None:
    path = podman.folder / "Dockerfile"
    path.write_text("FROM debian\n#" + "x" * builds.MAX_DOCKERFILE_BYTES)
    assert find_key(podman) is None
    path.write_bytes(b"FROM debian\n# \xff\n")
    assert find_key(podman) is None
    path.unlink()
    assert find_key(podman) is None


def test_a_carriage_return_does_not_end_a_line(podman: Podman) -> None:
    """To podman, it is a blank: `RUN`, `b` and `c` are files here."""
    (podman.folder / "Dockerfile").write_bytes(b"FROM debian\nCOPY a\rRUN b c /x\n")
    before = find_key(podman)
    (podman.folder / "context/c").touch()
    assert before is not None and find_key(podman) != before


def test_a_context_that_is_no_folder_is_not_shared(podman: Podman) -> None:
    for context in ("https://example.com/x.git", "-", f"{podman.folder}/missing", ""):
        build = Build(f"{podman.folder}/Dockerfile", context, ["x"])
        assert builds.find_key(build, podman.path) is None


@pytest.mark.parametrize("context", ["/", "..", "link", "../secrets", "https://example.com/x.git", "-"])
def test_a_context_outside_of_the_repository_is_refused(podman: Podman, context: str) -> None:
    """There are secrets, which would be in the image, and with it in the archive for others."""
    (podman.folder / "link").symlink_to("/etc")
    path = context if context.startswith(("/", "http", "-")) else f"{podman.folder}/{context}"
    with pytest.raises(Refused, match="not in the repository"):
        podman.run("-f", f"{podman.folder}/Dockerfile", "-t", "x", path)
    assert podman.calls == []


def test_contexts_that_the_cli_makes_itself_are_built(podman: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    made = podman.folder.parent / "made/container-features"
    made.mkdir(parents=True)
    monkeypatch.setattr(builds, "CLI_FOLDERS", (str(made.parent),))
    assert podman.run("-f", f"{podman.folder}/Dockerfile", "-t", "x", str(made)) == 0


@pytest.mark.parametrize("name", ["Dockerfile.dockerignore", "Dockerfile.containerignore", "context/.dockerignore"])
def test_a_list_of_files_to_leave_out_that_is_a_link_is_not_shared(podman: Podman, name: str) -> None:
    (podman.folder / name).symlink_to("elsewhere")
    assert find_key(podman) is None


def test_the_result_of_a_build_is_named_for_the_next_workspace(podman: Podman) -> None:
    key = find_key(podman)
    assert podman.run(*list_arguments(podman)) == 0
    assert podman.announced == [key]
    assert podman.images[f"{builds.SHARED}:{key}"] == {"Id": "built"}


def test_what_was_built_before_is_not_built_again(podman: Podman, capfd: pytest.CaptureFixture[str]) -> None:
    podman.run(*list_arguments(podman))
    assert podman.run(*list_arguments(podman)) == 0
    assert podman.calls == ["image inspect", "image exists", f"tag {builds.SHARED}:{podman.announced[0]}"]
    assert "nothing to build" in capfd.readouterr().err
    assert podman.announced == [find_key(podman)]


def test_what_another_workspace_built_is_loaded(podman: Podman) -> None:
    key = find_key(podman)
    (podman.folder / f"cache/{key}.tar").write_text(f"{builds.SHARED}:{key}")
    assert podman.run(*list_arguments(podman)) == 0
    assert "load --quiet" in podman.calls and not [call for call in podman.calls if call.startswith("build")]
    assert (podman.images["x"], podman.images["y"]) == ({"Id": "loaded"}, {"Id": "loaded"})


def test_what_has_got_the_name_of_a_shared_image_is_not_given_to_others(podman: Podman) -> None:
    """An archive in the repository, which podman has unpacked as the image of a service, names its images itself. The
    key of what another branch builds is known to who has read that."""
    key = find_key(podman)
    podman.set_images({**podman.images, f"{builds.SHARED}:{key}": {"Id": "planted"}}, {})
    (podman.folder / "awaited").touch()
    assert podman.run(*list_arguments(podman)) == 0
    assert podman.announced == [key]
    assert podman.images["x"] == podman.images[f"{builds.SHARED}:{key}"] == {"Id": "built"}


def test_an_archive_that_cannot_be_used_leads_to_a_build(podman: Podman) -> None:
    key = find_key(podman)
    (podman.folder / f"cache/{key}.tar").write_text("another name")
    assert podman.run(*list_arguments(podman)) == 0
    assert (podman.images["x"], podman.announced) == ({"Id": "built"}, [key])


def test_a_build_without_a_cache_uses_nothing_that_was_built_before(podman: Podman) -> None:
    podman.run(*list_arguments(podman))
    assert podman.run(*list_arguments(podman, "--no-cache")) == 0
    assert [call for call in podman.calls if call.startswith("build")]


def test_a_build_that_fails_is_not_shared(podman: Podman) -> None:
    (podman.folder / "broken").touch()
    assert podman.run(*list_arguments(podman)) == 3
    assert podman.named == []


def test_a_workspace_that_shares_nothing_asks_nothing(podman: Podman) -> None:
    assert podman.run(*list_arguments(podman), is_shared=False) == 0
    assert podman.calls == ["build --network=host"]
    assert podman.announced == ["None"]
