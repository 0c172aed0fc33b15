"""A template that instances are made from cannot be deleted: they could not be brought up to date any more."""

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Conflict
from fairlead.core.objects import name_of
from fairlead.core.user import User
from fairlead.kinds.resolution import TEMPLATES
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key

INSTANCES = {templates: plural for plural, (templates, _) in TEMPLATES.items()}
NAMED = 10
"""How many of those who use a template are named."""


def templates_in_use(may: May, api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb == "delete" and is_one_of(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        plural, name = INSTANCES[kind.plural], name_of(change.obj)
        entries = registry.view.entries(api_group, plural)
        users = [entry.key for entry in entries if entry.fields.get("spec.templateRef.name") == name]
        if users:
            why = f"{_list(users, change.user, may)} made from it; delete them or give them another template first"
            raise Conflict.of(kind.plural, kind.group, name, why)

    return rule


def _list(keys: list[Key], user: User, may: May) -> str:
    """Who uses it, as far as the asker may see them, and how many others do."""
    named: list[str] = []
    for group, plural, namespace, name in keys:
        if len(named) == NAMED:
            break
        if may(user, Target("get", "", "", group, "v1", plural, "", namespace, name)).allowed:
            named.append(f"{namespace}/{name}")
    others = len(keys) - len(named)
    plural = keys[0][1]
    if not named:
        return f"{others} of the {plural} {'is' if others == 1 else 'are'}"
    rest = f" and {others} more" if others else ""
    return f"the {plural} {', '.join(named)}{rest} {'is' if len(keys) == 1 else 'are'}"
