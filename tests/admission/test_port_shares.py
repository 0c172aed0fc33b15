"""Who may share a port of a workspace, and which shares end with another owner or project. In the browser:
`tests/live/test_port_hosts.py`."""

import json
from typing import Any

import pytest

from fairlead.admission.port_shares import check_port_shares
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.domain.port_shares import MAX_SHARE_SECONDS, SHARES_ANNOTATION
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture, write_options

NAMESPACE, KIND = "service-p-demo", "DevPodWorkspaceInstance"


def describe_shares(api: RegistryFixture, seconds: int = 60) -> str:
    until = int(api.clock.now().timestamp()) + seconds
    return json.dumps([{"port": 13337, "project": True, "until": until}])


async def create(api: RegistryFixture, *, may_use: bool = True) -> RegistryFixture:
    def authorize(user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.namespace, target.name) == ("use", NAMESPACE, "w")
        return Decision(may_use)

    checked = api.with_rules(check_port_shares(authorize, api.clock, MANAGEMENT_GROUP))
    await checked.create(KIND, "w", NAMESPACE, spec={"owner": {"user": "mallory"}})
    return checked


async def change(api: RegistryFixture, shares: str = "", **spec: Any) -> None:
    def edit(old: Object) -> Object:
        annotations = {**(old["metadata"].get("annotations") or {}), **({SHARES_ANNOTATION: shares} if shares else {})}
        return {**old, "metadata": {**old["metadata"], "annotations": annotations}, "spec": {**old["spec"], **spec}}

    await api.resource(KIND).modify(NAMESPACE, "w", edit, write_options())


def find_annotation(api: RegistryFixture) -> str:
    entry = api.resource(KIND).get_cached(NAMESPACE, "w")
    assert entry is not None
    return str((decode(entry)["metadata"].get("annotations") or {}).get(SHARES_ANNOTATION, ""))


async def test_who_may_use_a_workspace_shares_its_ports_for_a_while(api: RegistryFixture) -> None:
    checked = await create(api)
    await change(checked, describe_shares(api))
    await change(checked, displayName="x")
    assert json.loads(find_annotation(checked)) == [{**each, "by": "ada"} for each in json.loads(describe_shares(api))]
    with pytest.raises(Invalid, match="ends too late"):
        await change(checked, describe_shares(api, MAX_SHARE_SECONDS + 60))


async def test_to_update_the_object_is_not_enough(api: RegistryFixture) -> None:
    checked = await create(api, may_use=False)
    with pytest.raises(Forbidden, match="may not use it"):
        await change(checked, describe_shares(api))


async def test_a_new_owner_has_shared_nothing(api: RegistryFixture) -> None:
    """Else the former owner, or who the former owner has chosen, could go on to open an editor there."""
    checked = await create(api)
    await change(checked, describe_shares(api))
    await change(checked, owner={"user": "dave"})
    assert find_annotation(checked) == ""
    await change(checked, describe_shares(api), owner={"user": "ada"})
    assert find_annotation(checked) == ""
    await change(checked, describe_shares(api))
    assert find_annotation(checked) != ""


async def test_nothing_is_shared_with_the_members_of_another_project(api: RegistryFixture) -> None:
    checked = await create(api)
    shares = {SHARES_ANNOTATION: describe_shares(api)}
    moved = api.build_object(KIND, "w", "service-p-other", metadata={"annotations": {**shares, "other": "x"}}, spec={})
    await checked.resource(KIND).prepare_move_in(moved, write_options())
    assert moved["metadata"]["annotations"] == {"other": "x"}
