"""Method, path and query to what is being asked: a pure function, so that a table can test it.

The management API is a whole API root below a mount point; beside it stand the platform's own paths. What the path
names need not exist: that is asked later, when it is known who asks.
"""

from collections.abc import Mapping

from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.errors import BadRequest
from fairlead.registry.names import path_segment_faults

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


def route(method: str, path: str, query: Mapping[str, list[str]], mount: str) -> Target:
    """The Target of a request. `mount` is where the management API hangs, such as `/kubernetes/management`."""
    if path != mount and not path.startswith(mount + "/"):
        return Target(_plain_verb(method), path)
    path = path[len(mount) :] or "/"
    steps = path.removeprefix("/").removesuffix("/").split("/")
    if "" in steps:  # two slashes in a row name nothing
        return Target(_plain_verb(method), path, MANAGEMENT)
    if len(steps) > 2 and steps[0] == "api":
        return _resource(method, path, ("", steps[1]), steps[2:], query)
    if len(steps) > 3 and steps[0] == "apis":
        return _resource(method, path, (steps[1], steps[2]), steps[3:], query)
    return Target(_plain_verb(method), path, MANAGEMENT)


def _plain_verb(method: str) -> str:
    """Methods are upper case; whatever else was sent is no verb at all."""
    return "get" if method == "HEAD" else method.lower() if method.isupper() else ""


def _resource(
    method: str, path: str, group_version: tuple[str, str], steps: list[str], query: Mapping[str, list[str]]
) -> Target:
    group, version = group_version
    namespace = ""
    if steps[0] == "namespaces" and len(steps) > 1:
        namespace = steps[1]
        if len(steps) > 2 and (group or steps[2] not in _NAMESPACE_SUBRESOURCES):
            steps = steps[2:]
            nowhere = not group and steps[0] == "namespaces"  # there are none inside one
        else:
            nowhere = bool(group)
        if nowhere:
            return Target(_plain_verb(method), path, MANAGEMENT)
    resource, name, subresource = steps[0], steps[1] if len(steps) > 1 else "", "/".join(steps[2:])
    for each in (namespace, name):
        _refuse_tricks(each)
    verb = _verb(method, name, query)
    return Target(verb, path, MANAGEMENT, group, version, resource, subresource, namespace, name)


def _verb(method: str, name: str, query: Mapping[str, list[str]]) -> str:
    verb = _VERBS.get(method, "")
    if name:
        return verb
    if verb == "get" and truthy((query.get("watch") or [""])[0], present="watch" in query):
        return "watch"
    return _COLLECTION_VERBS.get(verb, verb)


def truthy(text: str, present: bool = True) -> bool:
    """A flag in a query as Kubernetes reads it: absent, `0` and `false` are no, everything else is yes."""
    return present and text.lower() not in ("0", "false")


def _refuse_tricks(step: str) -> None:
    """Names that would mean something else as a path never reach the registry."""
    for fault in path_segment_faults(step):
        raise BadRequest(f'Name parameter invalid: "{step}": {fault}')
    if "\x00" in step:
        raise BadRequest("Name parameter invalid: it contains a NUL byte")
