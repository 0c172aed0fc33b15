"""Describes the objects that use another one, for the error of a deletion that they prevent."""

from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.user import User
from fairlead.storage.contract import Key

MAX_NAMED_INSTANCES = 10
"""How many objects an error message names."""


def describe_users(keys: list[Key], user: User, authorize: Authorize) -> str:
    """Names the objects that the requester may read, and counts the others, as the beginning of a sentence."""
    named: list[str] = []
    for group, plural, namespace, name in keys:
        if len(named) == MAX_NAMED_INSTANCES:
            break
        if authorize(
            user,
            RequestInfo(verb="get", group=group, version="v1", resource=plural, namespace=namespace, name=name),
        ).allowed:
            named.append(f"{namespace}/{name}" if namespace else name)
    others = len(keys) - len(named)
    plural = keys[0][1]
    if not named:
        return f"{others} of the {plural} {'is' if others == 1 else 'are'}"
    rest = f" and {others} more" if others else ""
    if len(keys) == 1:
        return f"the {plural.removesuffix('s')} {named[0]} is"
    return f"the {plural} {', '.join(named)}{rest} are"
