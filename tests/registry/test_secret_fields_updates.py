"""registry/secret_fields.py: updates keep write-only fields only for the host they were set for."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from fairlead.core.errors import Invalid, Problem
from fairlead.core.objects import Object, get_path
from fairlead.kinds import KINDS
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.patching import json_patch
from fairlead.registry.patching.merge_patches import apply_merge_patch
from fairlead.registry.schema import Schema, array, boolean, obj, string
from fairlead.registry.secret_fields import restore_write_only
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture

PASSWORD = string(format="password")
SPEC = obj(
    password=PASSWORD,
    passwordRef=obj(name=string()),
    host=string(),
    note=string(),
    insecure=boolean(),
    repos=array(obj(name=string(), host=string(), password=PASSWORD)),
    versions=array(obj(version=string(), chart=obj(host=string(), password=PASSWORD))),
)
PATHS = ("spec.password", "spec.repos.password", "spec.versions.chart.password")
VAULT = Kind(
    *("Vault", "vaults", False, {"spec": SPEC}, "For tests."),
    sensitive=PATHS,
    write_only=PATHS,
    safe_siblings={"spec.password": ("note", "repos", "versions"), "spec.repos.password": ("name",)},
    sensitivity=Sensitivity.NORMAL,
)


def build_vault(**spec: object) -> Object:
    return {"apiVersion": VAULT.api_version, "kind": "Vault", "metadata": {"name": "a"}, "spec": dict(spec)}


def restore_fields(old: Object, new: Object) -> tuple[Object, list[Problem]]:
    problems = restore_write_only(build_vault(**old), changed := build_vault(**new), VAULT)
    return changed["spec"], problems


def test_an_update_without_a_write_only_field_keeps_it() -> None:
    assert restore_fields({"password": "x", "host": "h"}, {"host": "h", "note": "n"}) == (
        {"password": "x", "host": "h", "note": "n"},
        [],
    )


def test_an_update_with_another_value_replaces_it() -> None:
    for value in ("", "y", None):
        assert restore_fields({"password": "x", "host": "h"}, {"host": "evil", "password": value})[1] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://good.example.com", "https://evil.example.com"),
        ("https://good.example.com", "https://good.example.com@evil.example.com"),
        ("https://good.example.com", "https://good.example.com:8443"),
        ("https://good.example.com", "http://good.example.com"),
        ("https://good.example.com", "https://GOOD.example.com"),
        ("https://good.example.com", "https://good.example.com."),
        ("https://good.example.com", "https://good.example.com\\@evil.example.com"),
        ("https://good.example.com", " https://good.example.com"),
        ("https://good.example.com", ""),
        ("https://good.example.com", None),
        ("", "https://evil.example.com"),
    ],
)
def test_a_changed_host_requires_the_password_again_for_any_spelling(old: str, new: str | None) -> None:
    spec, (problem,) = restore_fields({"password": "canary", "host": old}, {"host": new})
    assert "password" not in spec
    assert (problem.field, problem.reason) == ("spec.password", "FieldValueRequired")
    assert "must be sent again because spec.host changed" in problem.message and "canary" not in problem.message


def test_an_added_or_removed_sibling_requires_it_again_and_empty_counts_as_absent() -> None:
    assert restore_fields({"password": "x"}, {"insecure": True})[1]
    assert restore_fields({"password": "x", "insecure": True}, {})[1]
    assert restore_fields({"password": "x", "insecure": False, "host": ""}, {})[1] == []


def test_a_secret_reference_replaces_a_password() -> None:
    assert restore_fields({"password": "x", "host": "a"}, {"host": "b", "passwordRef": {"name": "r"}}) == (
        {"host": "b", "passwordRef": {"name": "r"}},
        [],
    )


def test_a_password_does_not_move_to_another_list_item() -> None:
    old = [{"host": "a", "password": "x"}, {"host": "b", "password": "y"}]
    spec, problems = restore_fields({"repos": old}, {"repos": [{"host": "b"}, {"host": "evil"}, {"host": "a"}]})
    assert [each.get("password") for each in spec["repos"]] == ["y", None, "x"] and problems == []


def test_a_list_item_of_the_same_name_with_another_host_needs_its_password_again() -> None:
    old = [{"name": "one", "host": "a", "password": "x"}, {"name": "two", "host": "a", "password": "y"}]
    spec, (problem,) = restore_fields(
        {"repos": old}, {"repos": [{"name": "two", "host": "evil"}, {"name": "one", "host": "a"}]}
    )
    assert [each.get("password") for each in spec["repos"]] == [None, "x"]
    assert problem.field == "spec.repos[0].password" and "spec.repos[0].host changed" in problem.message


def test_a_renamed_list_item_keeps_its_password_for_the_same_host_only() -> None:
    old = [{"name": "one", "host": "a", "password": "x"}]
    assert restore_fields({"repos": old}, {"repos": [{"name": "new", "host": "a"}]})[0]["repos"][0]["password"] == "x"
    assert restore_fields({"repos": old}, {"repos": [{"name": "new", "host": "b"}]}) == (
        {"repos": [{"name": "new", "host": "b"}]},
        [],
    )


def test_list_items_with_versions_are_matched_by_version() -> None:
    old = [{"version": each, "chart": {"host": "h", "password": each}} for each in ("1.0.0", "1.1.0")]
    new: list[Object] = [{"version": "1.1.0", "chart": {"host": "h"}}, {"version": "1.0.0", "chart": {"host": "evil"}}]
    spec, (problem,) = restore_fields({"versions": old}, {"versions": new})
    assert [each["chart"].get("password") for each in spec["versions"]] == ["1.1.0", None]
    assert problem.field == "spec.versions[1].chart.password"


def test_a_removed_spec_loses_its_passwords() -> None:
    new: Object = {"metadata": {"name": "a"}}
    assert restore_write_only(build_vault(password="x"), new, VAULT) == []
    assert get_path(new, "spec.password") is None


def test_long_lists_are_matched_in_linear_time() -> None:
    old = [{"name": f"n{each}", "host": "a", "password": str(each)} for each in range(5_000)]
    new: list[Object] = [{"name": f"n{each}", "host": "a"} for each in reversed(range(5_000))]
    spec, problems = restore_fields({"repos": old}, {"repos": new})
    assert problems == [] and all(each["password"] == each["name"][1:] for each in spec["repos"])


# --- every write-only field of every kind


WRITE_ONLY_FIELDS = [(kind, path) for kind in KINDS if kind.persisted for path in kind.write_only]
ADDRESS_PREFIXES = (
    "repo",
    "url",
    "host",
    "server",
    "username",
    "insecure",
    "connector",
    "issuer",
    "address",
    "endpoint",
)


def parent_schema(kind: Kind, path: str) -> Schema:
    """Returns the schema of the object that contains the field."""
    schema: Schema = {"properties": dict(kind.fields)}
    for step in path.split(".")[:-1]:
        schema = schema["properties"][step]
        schema = schema.get("items", schema)
    return schema


def build_object(kind: Kind, path: str, leaf: Object) -> Object:
    """Returns an object with only the leaf at the parent of the field."""
    steps = path.split(".")[:-1]
    schema: Schema = {"properties": dict(kind.fields)}
    lists = []
    for step in steps:
        schema = schema["properties"][step]
        lists.append("items" in schema)
        schema = schema.get("items", schema)
    value: Any = leaf
    for step, is_list in zip(reversed(steps), reversed(lists), strict=True):
        value = {step: [value] if is_list else value}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}, **value}


def sibling_fields(kind: Kind, path: str) -> Iterator[str]:
    parent, _, name = path.rpartition(".")
    hidden = {each.rpartition(".")[2] for each in kind.write_only if each.rpartition(".")[0] == parent}
    return (
        each for each in parent_schema(kind, path).get("properties", {}) if each not in hidden and each != f"{name}Ref"
    )


@pytest.mark.parametrize(
    ("kind", "path"), WRITE_ONLY_FIELDS, ids=lambda each: each if isinstance(each, str) else each.name
)
def test_each_write_only_field_of_each_kind_depends_on_its_siblings(kind: Kind, path: str) -> None:
    name, safe = path.rpartition(".")[2], kind.safe_siblings.get(path, ())
    for sibling in sibling_fields(kind, path):
        old = build_object(kind, path, {name: "canary", sibling: "old"})
        new = build_object(kind, path, {sibling: "new"})
        problems = restore_write_only(old, new, kind)
        is_carried = b"canary" in orjson.dumps(new)
        assert is_carried == (sibling in safe), sibling
        assert is_carried or path.count(".") > 1 or [each.field for each in problems] == [path]
        assert b"canary" not in orjson.dumps([each.message for each in problems])


@pytest.mark.parametrize(
    ("kind", "path"), WRITE_ONLY_FIELDS, ids=lambda each: each if isinstance(each, str) else each.name
)
def test_no_address_field_is_a_safe_sibling(kind: Kind, path: str) -> None:
    if path == "spec.key":  # a hash, which gives no access
        return
    for name in kind.safe_siblings.get(path, ()):
        assert not any(name.lower().startswith(word) for word in ADDRESS_PREFIXES)


# --- every kind of write


CHART = {"name": "app", "repoURL": "https://charts.example.com", "username": "ci", "password": "canary"}


@pytest.fixture
async def app(api: RegistryFixture) -> RegistryFixture:
    await api.create("App", "a", spec={"config": {"chart": CHART}})
    return api


async def modify_app(api: RegistryFixture, edit: Any) -> None:
    await api.resource("App").modify("", "a", edit, WriteOptions(ADA, "tests", is_patch=True))


OTHER_HOST = "https://evil.example.com"
PATCH = [{"op": "replace", "path": "/spec/config/chart/repoURL", "value": OTHER_HOST}]


@pytest.mark.parametrize(
    "edit",
    [
        lambda old: {**old, "spec": {"config": {"chart": {"name": "app", "repoURL": OTHER_HOST, "username": "ci"}}}},
        lambda old: apply_merge_patch(old, {"spec": {"config": {"chart": {"repoURL": OTHER_HOST}}}}),
        lambda old: apply_merge_patch(old, {"spec": {"config": {"chart": {"insecureSkipTlsVerify": True}}}}),
        lambda old: apply_merge_patch(old, {"spec": {"config": {"chart": {"username": None}}}}),
        lambda old: json_patch.apply(old, PATCH),
    ],
    ids=["put", "merge", "insecure", "username", "json patch"],
)
async def test_no_write_keeps_a_password_for_another_host(app: RegistryFixture, edit: Any) -> None:
    with pytest.raises(Invalid) as caught:
        await modify_app(app, edit)
    assert [each.field for each in caught.value.details.problems] == ["spec.config.chart.password"]
    stored = app.get("App", "a")
    assert get_path(stored, "spec.config.chart.password") == "canary"
    assert get_path(stored, "spec.config.chart.repoURL") == CHART["repoURL"]


async def test_an_apply_keeps_no_password_for_another_host(app: RegistryFixture) -> None:
    config = app.build_object("App", "a", spec={"config": {"chart": {"repoURL": OTHER_HOST}}})
    writing = WriteOptions(ADA, "attacker", is_apply=True, is_patch=True, force=True)
    with pytest.raises(Invalid, match="must be sent again"):
        await app.resource("App").apply(config, "", "a", writing)


async def test_removing_and_adding_the_chart_loses_the_password(app: RegistryFixture) -> None:
    await modify_app(app, lambda old: {**old, "spec": {"config": {}}})
    await modify_app(app, lambda old: {**old, "spec": {"config": {"chart": {"repoURL": OTHER_HOST}}}})
    assert get_path(app.get("App", "a"), "spec.config.chart.password") is None


@pytest.mark.parametrize("before", ["app", "oci://registry.example.com/app"])
@pytest.mark.parametrize("name", ["oci://evil.example.com/app", " oci://evil.example.com/app", "evil.example.com/app"])
async def test_a_chart_named_by_a_url_counts_as_another_host(api: RegistryFixture, before: str, name: str) -> None:
    """Without a repository, and for some tools even with one, the chart name is the download URL."""
    repo = {} if "/" in before else {"repoURL": CHART["repoURL"]}
    chart = {"name": before, "username": "ci", "password": "canary", **repo}
    await api.create("App", "a", spec={"config": {"chart": chart}})
    with pytest.raises(Invalid, match=r"because spec\.config\.chart\.name changed"):
        await modify_app(api, lambda old: apply_merge_patch(old, {"spec": {"config": {"chart": {"name": name}}}}))
    assert get_path(api.get("App", "a"), "spec.config.chart.name") == before


@pytest.mark.parametrize("change", [{"name": "other"}, {"values": "image: registry/app"}, {"values": "a: b\nc: /"}])
async def test_another_chart_of_the_same_repository_keeps_the_password(api: RegistryFixture, change: Object) -> None:
    await api.create("SpaceTemplate", "a", spec={"template": {"charts": [CHART]}})
    chart = {name: value for name, value in CHART.items() if name != "password"}
    changed = {"spec": {"template": {"charts": [{**chart, **change}]}}}
    await api.resource("SpaceTemplate").modify(
        "", "a", lambda old: apply_merge_patch(old, changed), WriteOptions(ADA, "tests")
    )
    charts = get_path(api.get("SpaceTemplate", "a"), "spec.template.charts")
    assert [each["password"] for each in charts] == ["canary"]


async def test_another_version_of_the_chart_keeps_the_password(app: RegistryFixture) -> None:
    await modify_app(app, lambda old: apply_merge_patch(old, {"spec": {"config": {"chart": {"version": "2.0.0"}}}}))
    assert get_path(app.get("App", "a"), "spec.config.chart.password") == "canary"
