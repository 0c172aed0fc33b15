"""Changes of fields that are lists, such as the members of a team."""

from collections.abc import Callable
from typing import Any

from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.objects import get_path

MAX_ATTEMPTS = 5


def update_list(client: Client, plural: str, name: str, field: str, update: Callable[[list[Any]], list[Any]]) -> bool:
    """Updates a list in the spec of an object. Returns False if that changes nothing.

    With optimistic locking: without resourceVersion, a concurrent change would be lost.
    """
    for _ in range(MAX_ATTEMPTS):
        current = client.get(plural, name)
        before = get_path(current, f"spec.{field}") or []
        after = update(before)
        if after == before:
            return False
        version = get_path(current, "metadata.resourceVersion")
        try:
            client.patch(plural, name, {"metadata": {"resourceVersion": version}, "spec": {field: after}})
            return True
        except ApiStatusError as problem:
            if problem.reason != "Conflict":
                raise
    kind = plural.removesuffix("s")
    raise ClientError(
        f"the {kind} {name} was changed concurrently {MAX_ATTEMPTS} times; change spec.{field} with `kubectl edit "
        f"{kind} {name}`"
    )
