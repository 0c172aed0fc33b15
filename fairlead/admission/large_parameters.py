"""Parses large parameters of instances before the other rules need them, in a thread: parsing the largest takes some
twenty milliseconds, in which the event loop would serve nothing else. `parse_values` remembers the result."""

import asyncio

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.objects import get_path
from fairlead.domain.parameters import is_large, parse_values
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def parse_large_parameters(api_group: str) -> Rule:
    """Must be before all rules that read parameters."""
    plurals = (APP_INSTANCE.plural, *TEMPLATE_INSTANCES)

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *plurals))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        for each in (change.old, change.new):
            text = get_path(each, "spec.parameters")
            if isinstance(text, str) and is_large(text):
                await asyncio.to_thread(parse_values, text)

    return rule
