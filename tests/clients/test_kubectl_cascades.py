"""`kubectl delete --cascade`: what happens to dependents, and who waits for whom."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.objects import Body, build_app, build_core_object, to_yaml
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

FINALIZER = "example.com/hold"


def create_object(kubectl: Kubectl, body: Body) -> Any:
    """Creates the object and returns it with its uid, which owner references need."""
    return json.loads(kubectl("create", "-f", "-", "-o", "json", body=to_yaml(body)))


def add_owners(body: Body, *owners: Any, blocking: bool = True) -> Body:
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocking,
        }
        for owner in owners
    ]
    return body


def add_finalizer(body: Body) -> Body:
    """Adds a finalizer, which keeps the object until it is removed."""
    body["metadata"]["finalizers"] = [FINALIZER]
    return body


def remove_finalizer(kubectl: Kubectl, name: str) -> None:
    """Removes only this finalizer: the garbage collector adds and removes others."""
    patch = json.dumps({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})
    kubectl("patch", "app", name, "--type=strategic", "-p", patch)


def list_existing_apps(kubectl: Kubectl, *names: str) -> list[str]:
    return kubectl.get_names("apps", "--ignore-not-found", *names)


@pytest.mark.parametrize("policy", [(), ("--cascade=background",)], ids=["default", "background"])
def test_dependents_are_deleted_after_their_owner(kubectl: Kubectl, policy: tuple[str, ...]) -> None:
    """A cluster-scoped owner may have namespaced dependents, which may have dependents, too."""
    owner = create_object(kubectl, build_app("owner"))
    child = create_object(kubectl, add_owners(build_core_object("ConfigMap", "child", "default"), owner))
    create_object(kubectl, add_owners(build_core_object("ConfigMap", "grandchild", "default"), child))
    kubectl("delete", "app", "owner", *policy)
    kubectl("wait", "--for=delete", "cm/child", "cm/grandchild", "--timeout=60s")


def test_foreground_deletion_deletes_dependents_before_their_owner(kubectl: Kubectl) -> None:
    family = {"family": "yes"}
    owner = create_object(kubectl, build_app("owner", family))
    child = create_object(kubectl, add_owners(build_app("child", family), owner))
    create_object(kubectl, add_owners(build_app("grandchild", family), child))
    command = ("get", "apps", "-l", "family=yes", "--watch", "--output-watch-events", "--no-headers")
    with kubectl.watching(*command) as process:
        assert process.stdout is not None
        events = (tuple(line.split()[:2]) for line in process.stdout)
        assert [next(events)[1] for _ in range(3)] == ["child", "grandchild", "owner"]
        kubectl("delete", "app", "owner", "--cascade=foreground", "--timeout=60s")
        deleted = list(iterate_deleted_names(events, "owner"))
    assert deleted == ["grandchild", "child", "owner"]


def iterate_deleted_names(events: Iterator[tuple[str, ...]], last: str) -> Iterator[str]:
    """Yields the names of deleted objects, up to the last one."""
    for event, name in events:
        if event == "DELETED":
            yield name
            if name == last:
                return


def test_foreground_deletion_waits_for_dependents_that_block_it(kubectl: Kubectl) -> None:
    owner = create_object(kubectl, build_app("owner"))
    create_object(kubectl, add_finalizer(add_owners(build_app("blocking"), owner)))
    create_object(kubectl, add_finalizer(add_owners(build_app("other"), owner, blocking=False)))
    kubectl("delete", "app", "owner", "--cascade=foreground", "--wait=false")
    kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "app/blocking", "app/other", "--timeout=60s")
    metadata = kubectl.get_json("app", "owner")["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    remove_finalizer(kubectl, "blocking")
    kubectl("wait", "--for=delete", "app/owner", "--timeout=60s")
    assert list_existing_apps(kubectl, "blocking", "other") == ["other"]
    remove_finalizer(kubectl, "other")
    kubectl("wait", "--for=delete", "app/other", "--timeout=60s")


def test_orphans_stay_without_their_owner_reference(kubectl: Kubectl) -> None:
    owner, other = create_object(kubectl, build_app("owner")), create_object(kubectl, build_app("other"))
    create_object(kubectl, add_owners(build_app("child"), owner))
    create_object(kubectl, add_owners(build_app("shared"), owner, other))
    kubectl("delete", "app", "owner", "--cascade=orphan", "--timeout=60s")
    child, shared = (kubectl.get_json("app", name)["metadata"] for name in ("child", "shared"))
    assert "ownerReferences" not in child and "deletionTimestamp" not in child
    assert [each["name"] for each in shared["ownerReferences"]] == ["other"]
    kubectl("delete", "app", "other", "child")
    kubectl("wait", "--for=delete", "app/shared", "--timeout=60s")


def test_a_dependent_stays_until_its_last_owner_is_deleted(kubectl: Kubectl) -> None:
    first, second = create_object(kubectl, build_app("first")), create_object(kubectl, build_app("second"))
    create_object(kubectl, add_owners(build_app("child"), first, second))
    kubectl("delete", "app", "first", "--cascade=foreground", "--timeout=60s")
    condition = f"--for=jsonpath={{.metadata.ownerReferences[*].name}}={second['metadata']['name']}"
    kubectl("wait", condition, "app/child", "--timeout=60s")
    kubectl("delete", "app", "second")
    kubectl("wait", "--for=delete", "app/child", "--timeout=60s")


def test_a_dependent_of_a_missing_owner_is_deleted_at_once(kubectl: Kubectl) -> None:
    """Another object has the owner's name, but another uid."""
    owner = create_object(kubectl, build_app("owner"))
    kubectl("delete", "app", "owner")
    create_object(kubectl, build_app("owner"))
    create_object(kubectl, add_owners(build_app("late"), owner))
    kubectl("wait", "--for=delete", "app/late", "--timeout=60s")
    assert list_existing_apps(kubectl, "owner") == ["owner"]
    kubectl("delete", "app", "owner")


def test_the_policy_applies_to_every_object_of_a_selector(kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        owner = create_object(kubectl, build_app(name, {"doomed": "yes"}))
        create_object(kubectl, add_owners(build_app(f"child-of-{name}"), owner))
    kubectl("delete", "apps", "-l", "doomed=yes", "--cascade=orphan", "--timeout=60s")
    assert list_existing_apps(kubectl, "one", "two", "child-of-one", "child-of-two") == ["child-of-one", "child-of-two"]
    kubectl("delete", "app", "child-of-one", "child-of-two")


def test_a_dry_run_deletes_neither_owner_nor_dependents(kubectl: Kubectl) -> None:
    owner = create_object(kubectl, build_app("owner"))
    child = create_object(kubectl, add_owners(build_app("child"), owner))
    kubectl("delete", "app", "owner", "--cascade=foreground", "--dry-run=server")
    items = kubectl.get_json("app", "owner", "child")["items"]
    versions = [each["metadata"]["resourceVersion"] for each in items]
    assert versions == [owner["metadata"]["resourceVersion"], child["metadata"]["resourceVersion"]]
    kubectl("delete", "app", "owner", "--cascade=foreground", "--timeout=60s")


def test_force_deletes_at_once_with_a_warning(kubectl: Kubectl) -> None:
    create_object(kubectl, build_app("forced"))
    warnings = kubectl.expect_warnings("delete", "app", "forced", "--force", "--grace-period=0")
    assert warnings.startswith("Warning: Immediate deletion")
    assert list_existing_apps(kubectl, "forced") == []


def test_describe_shows_the_owner_of_a_dependent(kubectl: Kubectl) -> None:
    owner = create_object(kubectl, build_app("owner"))
    create_object(kubectl, add_owners(build_app("child"), owner))
    output = kubectl("describe", "app", "child")
    assert re.search(rf"Owner References:\n\s+API Version:\s+{VERSION}\n", output)
    assert owner["metadata"]["uid"] in output
    assert kubectl("delete", "app", "owner", "--cascade=foreground").startswith(f'app.{GROUP} "owner" deleted')
