"""Owner references: their fields, blocked deletions, and garbage collection."""

import time

import pytest

from tests.harness.server_process import TIMEOUT_SECONDS
from tests.specification.api import Api, Object, build_object, unique_name

NOT_FOUND = 404


def build_reference(owner: Object, **flags: bool) -> Object:
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]} | flags


def create_owned_app(api: Api, *references: Object) -> str:
    return f"apps/{api.create_app(ownerReferences=list(references))['metadata']['name']}"


def wait_for_status(api: Api, path: str, code: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while api.send("GET", path).status_code != code:
        assert time.monotonic() < deadline, f"{path} never got {code}"
        time.sleep(0.02)


def test_an_object_is_deleted_when_all_of_its_owners_are_deleted(api: Api) -> None:
    first, second = api.create_app(), api.create_app()
    path = create_owned_app(api, build_reference(first), build_reference(second))
    api.send("DELETE", f"apps/{first['metadata']['name']}")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(owners := api.get(path)["metadata"]["ownerReferences"]) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert owners == [build_reference(second)]
    api.send("DELETE", f"apps/{second['metadata']['name']}")
    wait_for_status(api, path, NOT_FOUND)


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
def test_a_reference_needs_version_kind_name_and_uid(api: Api, field: str) -> None:
    whole = build_reference(api.create_app())
    part = {key: value for key, value in whole.items() if key != field}
    response = api.send("POST", "apps", build_object("App", unique_name(), ownerReferences=[part]))
    assert (response.status_code, field in response.json()["message"]) == (422, True)
    created = api.create_app(ownerReferences=[whole])
    assert created["metadata"]["ownerReferences"] == [whole]


def test_at_most_one_owner_is_the_controller(api: Api) -> None:
    first, second = (build_reference(api.create_app(), controller=True) for _ in range(2))
    assert (
        api.send("POST", "apps", build_object("App", unique_name(), ownerReferences=[first, second])).status_code == 422
    )
    second["controller"] = False
    assert api.create_app(ownerReferences=[first, second])["metadata"]["ownerReferences"][0]["controller"] is True


def test_foreground_deletion_waits_for_blocking_dependents(api: Api) -> None:
    owner = api.create_app()
    path, owner_path = (
        create_owned_app(api, build_reference(owner, blockOwnerDeletion=True)),
        f"apps/{owner['metadata']['name']}",
    )
    api.patch(path, {"metadata": {"finalizers": ["example.com/hold"]}})
    deleting = api.send("DELETE", f"{owner_path}?propagationPolicy=Foreground").json()
    assert deleting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.send("GET", owner_path).status_code == 200
    api.patch(path, {"metadata": {"finalizers": None}})
    wait_for_status(api, owner_path, NOT_FOUND)
    assert api.send("GET", path).status_code == NOT_FOUND


def test_block_owner_deletion_requires_permission_to_delete_the_owner(api: Api) -> None:
    user, owner = unique_name("user"), api.create_app()
    api.create("users", build_object("User", user))
    role = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["create", "get"]}
    api.client.post(f"{role}/clusterroles", json={"metadata": {"name": user}, "rules": [rule]}).raise_for_status()
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": role_ref, "subjects": [subject]}
    api.client.post(f"{role}/clusterrolebindings", json=binding).raise_for_status()
    with api.use_key(api.create_key(user=user)["spec"]["key"]) as user_client:
        blocking = build_object("App", unique_name(), ownerReferences=[build_reference(owner, blockOwnerDeletion=True)])
        response = user_client.send("POST", "apps", blocking)
        assert (response.status_code, "blockOwnerDeletion" in response.json()["message"]) == (422, True)
        user_client.create("apps", build_object("App", unique_name(), ownerReferences=[build_reference(owner)]))
