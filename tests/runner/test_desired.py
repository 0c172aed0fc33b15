"""From objects of the API to what an engine is called with."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.runner.credentials import Credentials, GitRepository, find_git_repository
from fairlead.runner.desired import build_spec, choose_source, hash_template, parse_source, read_wanted
from fairlead.runner.engines.contract import EngineError, FolderSource, GitSource, ImageSource, Limits, Source
from fairlead.runner.journal import WorkspaceRecord

REPOSITORY = "git:https://example.com/a.git"
SOURCE = GitSource("https://example.com/a.git")


def build_workspace(template: Object | None = None, **annotations: str) -> Object:
    meta = {"uid": "u", "name": "w", "namespace": "p", "annotations": annotations}
    status = {"instance": template, "templateHash": "server"} if template is not None else {}
    return {"metadata": meta, "spec": {"owner": {"user": "ada"}}, "status": status}


def build_record(**fields: Any) -> WorkspaceRecord:
    return WorkspaceRecord("u", "p", "w", **fields)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("git:https://example.com/a/b.git", GitSource("https://example.com/a/b.git")),
        ("git:https://example.com/a/b@main", GitSource("https://example.com/a/b", branch="main")),
        ("git:https://example.com/a/b@feature/x", GitSource("https://example.com/a/b", branch="feature/x")),
        ("git:https://example.com/a/b@sha256:0123abc", GitSource("https://example.com/a/b", commit="0123abc")),
        ("git:https://example.com/a/b@subpath:x/y", GitSource("https://example.com/a/b", subfolder="x/y")),
        (
            "git:https://example.com/a/b@main@subpath:x",
            GitSource("https://example.com/a/b", branch="main", subfolder="x"),
        ),
        ("git:git@example.com:a/b.git@main", GitSource("git@example.com:a/b.git", branch="main")),
        ("git:ssh://git@example.com:22/a/b.git", GitSource("ssh://git@example.com:22/a/b.git")),
        ("git:https://ada@example.com/a/b@main", GitSource("https://ada@example.com/a/b", branch="main")),
        ("git:/srv/repository@main", GitSource("/srv/repository", branch="main")),
        ("https://example.com/a/b", GitSource("https://example.com/a/b")),
        ("local:/home/ada/project", FolderSource("/home/ada/project")),
        ("image:debian:12", ImageSource("debian:12")),
    ],
)
def test_a_source_is_parsed(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize("text", ["", "git:", "local:", "image:", "nothing", "git:https://ada:secret@example.com/a"])
def test_what_is_no_source_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(EngineError) as raised:
        parse_source(text)
    assert raised.value.reason == "SourceRefused"
    assert "secret" not in raised.value.message.replace("secrets", "")


def test_the_source_of_the_first_up_stays_until_a_reset() -> None:
    workspace = build_workspace(None, **{"service.sh/workspace-source": REPOSITORY})
    assert choose_source(workspace, build_record()) == REPOSITORY
    assert choose_source(workspace, build_record(options={"source": "image:x"})) == "image:x"
    assert choose_source(workspace, build_record(source="image:y", options={"source": "image:x"})) == "image:y"
    reset = {"source": "image:x", "reset": True}
    assert choose_source(workspace, build_record(source="image:y", options=reset)) == "image:x"
    assert choose_source(build_workspace(), build_record(source="image:y", options={"reset": True})) == "image:y"


def test_a_spec_has_what_the_template_and_the_options_say() -> None:
    provider = {"memory": "512Mi", "cpus": "1500m", "processes": "100", "allow": "mounts", "color": "red"}
    template = {
        "provider": {"name": "devcontainer", "options": {name: {"value": value} for name, value in provider.items()}},
        "workspaceEnv": {"A": {"value": "1"}, "B": {"value": "2"}},
    }
    options = {"devContainerPath": ".devcontainer/x.json", "workspaceEnv": ["B=3", "C=a=b"], "recreate": True}
    spec = build_spec(build_workspace(template), build_record(options=options), SOURCE)
    assert not spec.is_trusted
    assert (spec.uid, spec.namespace, spec.name, spec.owner) == ("u", "p", "w", "ada")
    assert spec.limits == Limits(512 * 1024**2, 1.5, 100)
    assert (spec.permissions, dict(spec.options)) == (frozenset({"mounts"}), {"color": "red"})
    assert dict(spec.environment) == {"A": "1", "B": "3", "C": "a=b"}
    assert spec.dev_container_path == ".devcontainer/x.json"
    assert (spec.recreate, spec.reset) == (True, False)


@pytest.mark.parametrize(("template", "strategy"), [({"gitCloneStrategy": "shallow"}, "shallow"), ({}, ""), (None, "")])
def test_the_template_says_how_much_is_cloned(template: Object | None, strategy: str) -> None:
    assert build_spec(build_workspace(template), build_record(), SOURCE).clone_strategy == strategy


def test_another_clone_strategy_needs_no_new_container() -> None:
    assert hash_template(build_workspace({"gitCloneStrategy": "shallow"})) == hash_template(build_workspace({}))


@pytest.mark.parametrize(("name", "value"), [("memory", "much"), ("cpus", "-1"), ("processes", "0"), ("memory", "1e9")])
def test_a_limit_that_makes_no_sense_is_named(name: str, value: str) -> None:
    template = {"provider": {"name": "x", "options": {name: {"value": value}}}}
    with pytest.raises(EngineError, match=name):
        build_spec(build_workspace(template), build_record(), SOURCE)


def test_secret_values_are_kept_apart_from_others() -> None:
    reference = {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}}
    template = {
        "provider": {
            "name": "x",
            "options": {"color": {"value": "red"}, "password": reference, "memory": {"value": "1Gi"}},
        },
        "workspaceEnv": {"A": {"value": "1"}, "TOKEN": reference, "OTHER": reference, "HIDDEN": {"value": "<hidden>"}},
    }
    credentials = Credentials(
        {"password": "pw", "memory": "64Gi", "allow": "privileged"},
        {"TOKEN": "t", "OTHER": "o", "HIDDEN": "h"},
        {"FAIRLEAD_GIT_TOKEN": "g"},
    )
    record = build_record(options={"workspaceEnv": ["OTHER=mine"]})
    spec = build_spec(build_workspace(template), record, SOURCE, credentials)
    assert (dict(spec.options), dict(spec.secret_options)) == ({"color": "red"}, {"password": "pw"})
    assert dict(spec.environment) == {"A": "1", "OTHER": "mine"}
    assert dict(spec.secrets) == {"TOKEN": "t", "HIDDEN": "h", "FAIRLEAD_GIT_TOKEN": "g"}
    assert (spec.limits.memory_bytes, spec.permissions) == (1024**3, frozenset())  # whatever the server sends
    assert "pw" not in repr(spec) and "'h'" not in repr(spec)
    with pytest.raises(EngineError, match="TOKEN"):
        build_spec(build_workspace(template), record, SOURCE, Credentials({"password": ""}, {"OTHER": ""}))


def test_a_prebuild_has_no_secrets_but_those_of_the_clone_and_nothing_of_its_owner() -> None:
    credentials = Credentials(
        environment={"TOKEN": "t"},
        git={"FAIRLEAD_GIT_TOKEN": "g"},
        commit_name="Ada",
        commit_email="ada@example.com",
        dotfiles="https://example.com/dot.git",
    )
    reference = {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}}
    workspace = build_workspace({"provider": {"name": "x"}, "workspaceEnv": {"TOKEN": reference}})
    ordinary = build_spec(workspace, build_record(), SOURCE, credentials)
    workspace["metadata"]["annotations"] = {"service.sh/prebuild": "true"}
    spec = build_spec(workspace, build_record(), SOURCE, credentials)
    assert (dict(ordinary.secrets), ordinary.commit_name, ordinary.is_prebuild) == (
        {"TOKEN": "t", "FAIRLEAD_GIT_TOKEN": "g"},
        "Ada",
        False,
    )
    assert (dict(spec.secrets), spec.is_prebuild) == ({"FAIRLEAD_GIT_TOKEN": "g"}, True)
    assert (spec.commit_name, spec.commit_email, spec.dotfiles, dict(spec.environment)) == ("", "", "", {})


def test_the_hash_covers_what_needs_a_new_container() -> None:
    def hash_of(**template: Any) -> str:
        return hash_template(build_workspace({"provider": {"name": "x"}, **template}))

    assert hash_of() == hash_of(instanceTemplate={"metadata": {}}, preventWakeUpOnConnection=True)
    assert len({hash_of(), hash_of(workspaceEnv={"A": {"value": "1"}}), hash_of(provider={"name": "y"})}) == 3


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/a.git", GitRepository("example.com", "https", "/a.git")),
        ("https://ada@example.com:8443/a.git", GitRepository("example.com:8443", "https", "/a.git")),
        ("ssh://git@example.com:22/a.git", GitRepository("example.com:22", "ssh", "/a.git")),
        ("git@example.com:a/b.git", GitRepository("example.com", "ssh", "a/b.git")),
        ("http://example.com/a.git", GitRepository()),
        ("/srv/a@b:c", GitRepository()),
        ("/srv/repository", GitRepository()),
    ],
)
def test_the_host_and_path_of_a_repository_are_found(url: str, expected: GitRepository) -> None:
    assert find_git_repository(GitSource(url)) == expected


def test_what_is_wanted_is_read_from_the_object() -> None:
    workspace = build_workspace({}, **{"sleepmode.service.sh/force": "true"})
    assert read_wanted(workspace).is_asleep
    assert not read_wanted(build_workspace({})).is_asleep
    workspace["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert read_wanted(workspace).is_deleting
    workspace["spec"]["templateRef"] = {"name": "t"}
    assert read_wanted(workspace).is_template_resolved
    workspace["status"].pop("instance")
    assert not read_wanted(workspace).is_template_resolved


def with_environment(workspace: Object, name: str, text: str) -> Object:
    spec = {**workspace["spec"], "environmentRef": {"name": "e"}}
    environment = {"name": name, "version": "", "inline": text}
    return {**workspace, "spec": spec, "status": {**workspace["status"], "environment": environment}}


def test_an_environment_is_part_of_what_should_run_and_needs_a_new_container() -> None:
    plain = build_workspace({})
    one = with_environment(plain, "e", '{"image": "one"}')
    two = with_environment(plain, "e", '{"image": "two"}')
    assert build_spec(one, build_record(), SOURCE).dev_container == '{"image": "one"}'
    assert build_spec(plain, build_record(), SOURCE).dev_container == ""
    assert len({hash_template(each) for each in (plain, one, two)}) == 3
    # Without one, it stays as earlier runners computed it: an upgrade of the runner replaces no containers.
    assert hash_template(plain) == "1d125c3812c0871c563dfdf3"


def test_an_up_waits_for_the_environment_that_the_workspace_names() -> None:
    plain = build_workspace()
    assert read_wanted(plain).is_template_resolved
    assert read_wanted(with_environment(plain, "e", "{}")).is_template_resolved
    other = with_environment(plain, "former", "{}")
    assert not read_wanted(other).is_template_resolved
    assert build_spec(other, build_record(), SOURCE).dev_container == ""
    assert not read_wanted({**other, "status": {}}).is_template_resolved


def test_an_environment_that_is_no_longer_wanted_is_not_used() -> None:
    workspace = with_environment(build_workspace({}), "e", "{}")
    del workspace["spec"]["environmentRef"]
    assert build_spec(workspace, build_record(), SOURCE).dev_container == ""
