"""Updates of default roles by a newer version of the server: new permissions are added, and edits stay."""

from hashlib import sha256

import orjson
import pytest

from fairlead.authz.default_roles import ensure_default_roles
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.authz.test_default_roles import GROUP, READ, WRITE, allowed_verbs
from tests.harness.registry import ADA, RegistryFixture


@pytest.fixture
async def rbac(api: RegistryFixture) -> RbacAuthorizer:
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    return RbacAuthorizer.from_view(api.view)


async def create_earlier_version(
    api: RegistryFixture, name: str, options: WriteOptions, *, with_digest: bool = True
) -> list[Object]:
    """Replaces the role by one of an earlier version. Returns its rules."""
    current = api.get("ClusterRole", name)
    assert current is not None
    rules: list[Object] = current["rules"][:1]
    digest = sha256(orjson.dumps(rules, option=orjson.OPT_SORT_KEYS)).hexdigest()
    meta = {"name": name, "annotations": {"service.sh/default-rules": digest} if with_digest else {}}
    await api.delete("ClusterRole", name)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    await api.registry.resource(GROUP, "clusterroles").create(body, "", options)
    return rules


def rules_of(api: RegistryFixture, name: str) -> list[Object]:
    return list((api.get("ClusterRole", name) or {})["rules"] or [])


async def test_unchanged_roles_are_updated_to_the_version_of_the_server(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    new = {name: api.get("ClusterRole", name) for name in ("admin", "view")}
    await create_earlier_version(api, "admin", server_write_options())
    await create_earlier_version(api, "view", server_write_options())
    await api.patch("ClusterRole", "view", lambda obj: obj["metadata"].update(labels={"seen": "yes"}))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    for name, new_role in new.items():
        role = api.get("ClusterRole", name)
        assert new_role is not None and role is not None
        assert role["rules"] == new_role["rules"]
        assert role["metadata"]["annotations"] == new_role["metadata"]["annotations"]
    assert (api.get("ClusterRole", "view") or {})["metadata"]["labels"] == {"seen": "yes"}


@pytest.mark.parametrize("manager", ["tests", "fairlead"])
async def test_changed_rules_stay_whichever_field_manager_changed_them(
    api: RegistryFixture, rbac: RbacAuthorizer, manager: str
) -> None:
    await create_earlier_version(api, "view", server_write_options())
    changed: list[Object] = [{"apiGroups": [""], "resources": ["events"], "verbs": ["get"]}]
    await api.patch("ClusterRole", "view", lambda obj: obj.update(rules=changed), WriteOptions(ADA, manager))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == changed


async def test_a_role_of_the_first_release_gets_the_kinds_that_are_new_since(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    """The migration has marked those roles. What they were offered, and do not have, was removed by users."""
    new = api.get("ClusterRole", "view") or {}
    rules: list[Object] = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]},
    ]
    await create_role(api, "edit", rules, offered_rules="0.1")
    await create_role(api, "cluster-admin", [], offered_rules="0.1")
    await api.patch("ClusterRole", "view", lambda obj: obj["metadata"].pop("annotations"))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    edited = rules_of(api, "edit")
    assert edited[:2] == rules
    assert allowed_verbs(rbac, "edit", (*READ, *WRITE), "spaceinstances", MANAGEMENT_GROUP) == [*READ, *WRITE]
    assert allowed_verbs(rbac, "edit", (*READ, *WRITE), "configmaps") == ["get"]
    assert not allowed_verbs(rbac, "edit", READ, "secrets")
    assert rules_of(api, "cluster-admin") == []
    role = api.get("ClusterRole", "view") or {}
    assert role["metadata"]["annotations"] == new["metadata"]["annotations"]


async def create_role(api: RegistryFixture, name: str, rules: list[Object], **annotations: str) -> None:
    """Replaces the role by one with these rules."""
    await api.delete("ClusterRole", name)
    meta = {
        "name": name,
        "annotations": {f"service.sh/{key.replace('_', '-')}": annotations[key] for key in annotations},
    }
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    await api.registry.resource(GROUP, "clusterroles").create(body, "", server_write_options())


@pytest.mark.parametrize("name", ["cluster-admin", "edit", "view", "system:auditor"])
async def test_what_was_removed_by_replacing_a_role_is_not_added_again(
    api: RegistryFixture, rbac: RbacAuthorizer, name: str
) -> None:
    """As by a PUT from a file, which has none of the server's annotations."""
    offered = (api.get("ClusterRole", name) or {})["metadata"]["annotations"]["service.sh/offered-rules"]
    await create_role(api, name, [])
    for _ in range(2):
        await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
        assert rules_of(api, name) == []
    role = api.get("ClusterRole", name) or {}
    assert role["metadata"]["annotations"] == {"service.sh/offered-rules": offered}


def encode_rules(rules: list[Object]) -> str:
    return orjson.dumps(rules).decode()


async def test_an_edited_role_gets_only_what_it_was_not_offered_before(
    api: RegistryFixture, rbac: RbacAuthorizer
) -> None:
    """The version before offered everything but ConfigMaps, which are new, and the operator has removed Events."""
    offered = [
        {**rule, "resources": [name for name in rule["resources"] if name != "configmaps"]}
        for rule in rules_of(api, "view")
    ]
    mine: Object = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}
    await create_role(api, "view", [mine], offered_rules=encode_rules(offered), default_rules="other")
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    added = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    assert rules_of(api, "view") == [mine, added]
    await api.patch("ClusterRole", "view", lambda obj: obj.update(rules=[mine]))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == [mine]


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
    ],
    ids=["wildcards", "the same"],
)
async def test_permissions_that_a_role_has_are_not_added_again(
    api: RegistryFixture, rbac: RbacAuthorizer, rule: Object
) -> None:
    offered = [each for each in rules_of(api, "view") if "configmaps" not in each["resources"]]
    offered.append(
        {"apiGroups": [""], "resources": ["events", "pods", "serviceaccounts", "services"], "verbs": [*READ]}
    )
    await create_role(api, "view", [rule], offered_rules=encode_rules(offered))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == [rule]


@pytest.mark.parametrize("recorded", ["", "{", "[1]", "3", '{"a": 1}'])
async def test_an_unreadable_record_adds_nothing(api: RegistryFixture, rbac: RbacAuthorizer, recorded: str) -> None:
    mine: Object = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}
    await create_role(api, "view", [mine], offered_rules=recorded)
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == [mine]


async def test_a_role_with_autoupdate_false_stays(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    rules = await create_earlier_version(api, "view", server_write_options())
    annotation = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    await api.patch("ClusterRole", "view", lambda obj: obj["metadata"]["annotations"].update(annotation))
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP)
    assert rules_of(api, "view") == rules


async def test_an_older_version_leaves_the_roles_of_a_newer_one(api: RegistryFixture, rbac: RbacAuthorizer) -> None:
    rules = await create_earlier_version(api, "view", server_write_options())
    await api.delete("ClusterRole", "edit")
    await ensure_default_roles(api.registry, MANAGEMENT_GROUP, update=False)
    assert rules_of(api, "view") == rules
    assert rules_of(api, "edit")
