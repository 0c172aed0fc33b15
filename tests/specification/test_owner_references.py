"""References to owners: their fields, what they hold up, and what becomes of those whose owners are gone."""

import time

import pytest

from tests.harness.server_process import TIMEOUT_SECONDS
from tests.specification.api import Api, Body, body, fresh

GONE = 404


def reference(owner: Body, **more: bool) -> Body:
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]} | more


def owned_by(api: Api, *references: Body) -> str:
    return f"apps/{api.app(ownerReferences=list(references))['metadata']['name']}"


def await_code(api: Api, path: str, code: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while api.send("GET", path).status_code != code:
        assert time.monotonic() < deadline, f"{path} never answered {code}"
        time.sleep(0.02)


def test_an_object_goes_when_all_of_its_owners_are_gone(api: Api) -> None:
    first, second = api.app(), api.app()
    path = owned_by(api, reference(first), reference(second))
    api.send("DELETE", f"apps/{first['metadata']['name']}")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(owners := api.get(path)["metadata"]["ownerReferences"]) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert owners == [reference(second)]
    api.send("DELETE", f"apps/{second['metadata']['name']}")
    await_code(api, path, GONE)


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
def test_a_reference_says_version_kind_name_and_uid(api: Api, field: str) -> None:
    whole = reference(api.app())
    part = {key: value for key, value in whole.items() if key != field}
    refused = api.send("POST", "apps", body("App", fresh(), ownerReferences=[part]))
    assert (refused.status_code, field in refused.json()["message"]) == (422, True)
    made = api.app(ownerReferences=[whole])
    assert made["metadata"]["ownerReferences"] == [whole]


def test_one_owner_at_most_is_the_controller(api: Api) -> None:
    first, second = (reference(api.app(), controller=True) for _ in range(2))
    assert api.send("POST", "apps", body("App", fresh(), ownerReferences=[first, second])).status_code == 422
    second["controller"] = False
    assert api.app(ownerReferences=[first, second])["metadata"]["ownerReferences"][0]["controller"] is True


def test_whoever_blocks_its_owner_is_waited_for(api: Api) -> None:
    owner = api.app()
    path, above = owned_by(api, reference(owner, blockOwnerDeletion=True)), f"apps/{owner['metadata']['name']}"
    api.patch(path, {"metadata": {"finalizers": ["example.com/hold"]}})
    going = api.send("DELETE", f"{above}?propagationPolicy=Foreground").json()
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.send("GET", above).status_code == 200
    api.patch(path, {"metadata": {"finalizers": None}})
    await_code(api, above, GONE)
    assert api.send("GET", path).status_code == GONE


def test_blocking_takes_the_right_to_delete_the_owner(api: Api) -> None:
    user, owner = fresh("user"), api.app()
    api.make("users", body("User", user))
    role = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["management.service.sh"], "resources": ["apps"], "verbs": ["create", "get"]}
    api.client.post(f"{role}/clusterroles", json={"metadata": {"name": user}, "rules": [rule]}).raise_for_status()
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    held = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": held, "subjects": [subject]}
    api.client.post(f"{role}/clusterrolebindings", json=binding).raise_for_status()
    with api.holding(api.key(user=user)["spec"]["key"]) as theirs:
        blocking = body("App", fresh(), ownerReferences=[reference(owner, blockOwnerDeletion=True)])
        refused = theirs.send("POST", "apps", blocking)
        assert (refused.status_code, "blockOwnerDeletion" in refused.json()["message"]) == (422, True)
        theirs.make("apps", body("App", fresh(), ownerReferences=[reference(owner)]))
