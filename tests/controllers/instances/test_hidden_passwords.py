"""Tests of passwords in the status of instances: Events and conditions do not contain them."""

from fairlead.controllers.instances.instance_reconciler import InstanceReconciler
from fairlead.controllers.instances.status import record_transition
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import SpaceInstance
from fairlead.registry.codec import decode
from fairlead.registry.conditions import condition, find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.registry import NAMESPACE, open_registry


async def test_an_event_does_not_contain_a_password_that_the_cluster_returns() -> None:
    async with open_registry() as api:
        spec = {"parameters": "p: <hidden>", "parameterSecrets": {"p": "canary-1"}}
        instance = await api.create("SpaceInstance", "one", spec=spec)
        before: Object = {**instance, "spec": spec}
        rendered = {"renderedSecrets": {"q": "canary-2"}}
        status = {**rendered, "reason": "ApplyFailed", "message": "the cluster refuses canary-1 and canary-2"}
        await record_transition(api.registry, before, status)
        (event_name,) = api.list_names("Event")
        event = api.get("Event", event_name)
        assert event is not None and event["metadata"]["namespace"] == NAMESPACE
        assert event["message"] == "the cluster refuses <hidden> and <hidden>"


async def test_a_condition_does_not_contain_a_password_that_the_cluster_returns() -> None:
    """It may stay after the passwords of the instance have changed, and then they could not be found in it."""
    async with open_registry() as api:
        spec = {"parameters": "p: <hidden>", "parameterSecrets": {"p": "canary-1"}}
        instance = await api.create("SpaceInstance", "one", spec=spec)
        before: Object = {**instance, "spec": spec}
        resource = (GROUP, "spaceinstances")
        instances = InstanceReconciler(
            api.registry, resource, SpaceInstance, "service.sh/space", derive=lambda space, status, now: status
        )
        not_synced = condition("SpaceSynced", "False", "ApplyFailed", "the cluster refuses canary-1")
        await instances.write_status(SpaceInstance(before), (not_synced,))
        entry = api.resource("SpaceInstance").get_cached(NAMESPACE, "one")
        assert entry is not None
        synced = find_condition(decode(entry)["status"], "SpaceSynced")
        assert synced is not None and synced["message"] == "the cluster refuses <hidden>"
