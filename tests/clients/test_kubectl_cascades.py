"""kubectl deletes owners: what becomes of their dependants, and who has to wait for whom."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.objects import Body, app, as_yaml, core
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

HOLD = "example.com/hold"


def created(kubectl: Kubectl, body: Body) -> Any:
    """The object as the server made it, with the uid that dependants have to name."""
    return json.loads(kubectl("create", "-f", "-", "-o", "json", body=as_yaml(body)))


def owned(body: Body, *owners: Any, blocking: bool = True) -> Body:
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


def held(body: Body) -> Body:
    """An object that does not go before somebody takes this finalizer off."""
    body["metadata"]["finalizers"] = [HOLD]
    return body


def let_go(kubectl: Kubectl, name: str) -> None:
    """The garbage collector adds and removes finalizers of its own, so only this one must be named."""
    patch = json.dumps({"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})
    kubectl("patch", "app", name, "--type=strategic", "-p", patch)


def there(kubectl: Kubectl, *names: str) -> list[str]:
    return kubectl.names("apps", "--ignore-not-found", *names)


@pytest.mark.parametrize("policy", [(), ("--cascade=background",)], ids=["by default", "background"])
def test_dependants_go_after_their_owner(kubectl: Kubectl, policy: tuple[str, ...]) -> None:
    """An owner without a namespace may have dependants in one, and those may have dependants again."""
    owner = created(kubectl, app("owner"))
    child = created(kubectl, owned(core("ConfigMap", "child", "default"), owner))
    created(kubectl, owned(core("ConfigMap", "grandchild", "default"), child))
    kubectl("delete", "app", "owner", *policy)
    kubectl("wait", "--for=delete", "cm/child", "cm/grandchild", "--timeout=20s")


def test_in_the_foreground_dependants_go_before_their_owner(kubectl: Kubectl) -> None:
    family = {"family": "yes"}
    owner = created(kubectl, app("owner", family))
    child = created(kubectl, owned(app("child", family), owner))
    created(kubectl, owned(app("grandchild", family), child))
    command = ("get", "apps", "-l", "family=yes", "--watch", "--output-watch-events", "--no-headers")
    with kubectl.watching(*command) as process:
        assert process.stdout is not None
        events = (tuple(line.split()[:2]) for line in process.stdout)
        assert [next(events)[1] for _ in range(3)] == ["child", "grandchild", "owner"]
        kubectl("delete", "app", "owner", "--cascade=foreground", "--timeout=20s")
        ends = list(until_the_end(events, "owner"))
    assert ends == ["grandchild", "child", "owner"]


def until_the_end(events: Iterator[tuple[str, ...]], last: str) -> Iterator[str]:
    """The names of those who go, up to the last one."""
    for event, name in events:
        if event == "DELETED":
            yield name
            if name == last:
                return


def test_in_the_foreground_an_owner_waits_for_those_who_block_it(kubectl: Kubectl) -> None:
    owner = created(kubectl, app("owner"))
    created(kubectl, held(owned(app("blocking"), owner)))
    created(kubectl, held(owned(app("other"), owner, blocking=False)))
    kubectl("delete", "app", "owner", "--cascade=foreground", "--wait=false")
    kubectl("wait", "--for=jsonpath={.metadata.deletionTimestamp}", "app/blocking", "app/other", "--timeout=20s")
    waiting = kubectl.read("app", "owner")["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    let_go(kubectl, "blocking")
    kubectl("wait", "--for=delete", "app/owner", "--timeout=20s")
    assert there(kubectl, "blocking", "other") == ["other"]
    let_go(kubectl, "other")
    kubectl("wait", "--for=delete", "app/other", "--timeout=20s")


def test_orphans_stay_and_name_no_owner_any_more(kubectl: Kubectl) -> None:
    owner, other = created(kubectl, app("owner")), created(kubectl, app("other"))
    created(kubectl, owned(app("child"), owner))
    created(kubectl, owned(app("shared"), owner, other))
    kubectl("delete", "app", "owner", "--cascade=orphan", "--timeout=20s")
    child, shared = (kubectl.read("app", name)["metadata"] for name in ("child", "shared"))
    assert "ownerReferences" not in child and "deletionTimestamp" not in child
    assert [each["name"] for each in shared["ownerReferences"]] == ["other"]
    kubectl("delete", "app", "other", "child")
    kubectl("wait", "--for=delete", "app/shared", "--timeout=20s")


def test_a_dependant_stays_until_its_last_owner_has_gone(kubectl: Kubectl) -> None:
    first, second = created(kubectl, app("first")), created(kubectl, app("second"))
    created(kubectl, owned(app("child"), first, second))
    kubectl("delete", "app", "first", "--cascade=foreground", "--timeout=20s")
    left = f"--for=jsonpath={{.metadata.ownerReferences[*].name}}={second['metadata']['name']}"
    kubectl("wait", left, "app/child", "--timeout=20s")
    kubectl("delete", "app", "second")
    kubectl("wait", "--for=delete", "app/child", "--timeout=20s")


def test_a_dependant_of_an_owner_that_is_not_there_goes_at_once(kubectl: Kubectl) -> None:
    """The name is taken again, but by another object."""
    owner = created(kubectl, app("owner"))
    kubectl("delete", "app", "owner")
    created(kubectl, app("owner"))
    created(kubectl, owned(app("late"), owner))
    kubectl("wait", "--for=delete", "app/late", "--timeout=20s")
    assert there(kubectl, "owner") == ["owner"]
    kubectl("delete", "app", "owner")


def test_every_object_that_a_selector_finds_is_deleted_by_the_policy(kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        owner = created(kubectl, app(name, {"doomed": "yes"}))
        created(kubectl, owned(app(f"child-of-{name}"), owner))
    kubectl("delete", "apps", "-l", "doomed=yes", "--cascade=orphan", "--timeout=20s")
    assert there(kubectl, "one", "two", "child-of-one", "child-of-two") == ["child-of-one", "child-of-two"]
    kubectl("delete", "app", "child-of-one", "child-of-two")


def test_a_dry_run_deletes_neither_owner_nor_dependants(kubectl: Kubectl) -> None:
    owner = created(kubectl, app("owner"))
    child = created(kubectl, owned(app("child"), owner))
    kubectl("delete", "app", "owner", "--cascade=foreground", "--dry-run=server")
    now = kubectl.read("app", "owner", "child")["items"]
    versions = [each["metadata"]["resourceVersion"] for each in now]
    assert versions == [owner["metadata"]["resourceVersion"], child["metadata"]["resourceVersion"]]
    kubectl("delete", "app", "owner", "--cascade=foreground", "--timeout=20s")


def test_force_deletes_at_once_with_a_warning_of_kubectl(kubectl: Kubectl) -> None:
    created(kubectl, app("forced"))
    said = kubectl.warned("delete", "app", "forced", "--force", "--grace-period=0")
    assert said.startswith("Warning: Immediate deletion")
    assert there(kubectl, "forced") == []


def test_describe_shows_the_owner_of_a_dependant(kubectl: Kubectl) -> None:
    owner = created(kubectl, app("owner"))
    created(kubectl, owned(app("child"), owner))
    told = kubectl("describe", "app", "child")
    assert re.search(rf"Owner References:\n\s+API Version:\s+{VERSION}\n", told)
    assert owner["metadata"]["uid"] in told
    assert kubectl("delete", "app", "owner", "--cascade=foreground").startswith(f'app.{GROUP} "owner" deleted')
