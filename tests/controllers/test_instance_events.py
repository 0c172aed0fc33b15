"""Events about instances: what they tell, and what they keep to themselves."""

from fairlead.controllers.instance_events import record_transition
from fairlead.core.objects import Object
from tests.admission.world import NAMESPACE, new_world


async def test_an_event_does_not_quote_a_password_that_the_cluster_quotes() -> None:
    async with new_world() as world:
        spec = {"parameters": "p: <hidden>", "parameterSecrets": {"p": "canary-1"}}
        made = await world.create("SpaceInstance", "one", spec=spec)
        before: Object = {**made, "spec": spec}
        rendered = {"renderedSecrets": {"q": "canary-2"}}
        status = {**rendered, "reason": "ApplyFailed", "message": "the cluster refuses canary-1 and canary-2"}
        await record_transition(world.registry, before, status)
        (event,) = world.names("Event")
        found = world.see("Event", event)
        assert found is not None and found["metadata"]["namespace"] == NAMESPACE
        assert found["message"] == "the cluster refuses <hidden> and <hidden>"
