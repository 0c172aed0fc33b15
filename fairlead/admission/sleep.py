"""Admission of sleep annotations of spaces and virtual clusters, and of their templates.

That one of them is asleep, since when and why, is what the server has decided: a user who could remove it would wake it
without regard to quotas. Others ask for a sleep or a wake-up with annotations that are theirs to write. An update that
changes the server's ones keeps them, with a warning: clients send back what they have read some time before.
Who shortens the time after which one is deleted has to be allowed to delete it.
Who wakes one up is recorded with the request. Annotations that make no sense are ignored later, so they get a warning.
"""

from collections.abc import Iterator, Mapping

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.core.call import Authorize
from fairlead.core.objects import Object, annotations_of, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.instance_sleep import find_problems
from fairlead.domain.sleep_mode import (
    DELETE_AFTER,
    FORCE,
    HOLD_UNTIL,
    LAST_ACTIVITY,
    LAST_ACTIVITY_INFO,
    SERVER_STATE,
    decode_info,
    encode_info,
    is_forced,
    parse_seconds,
    read_hold,
    sleep_type_of,
)
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

_INSTANCES = (SPACE.plural, VIRTUAL_CLUSTER.plural)
_TEMPLATES = ("spacetemplates", "virtualclustertemplates")


def keep_sleep_state(api_group: str) -> Rule:
    """Only the server writes that an instance is asleep."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.is_move or change.subresource:
            return
        _record_waker(change)
        stored = annotations_of(change.old) if change.old is not None else {}
        retained = {key: stored[key] for key in SERVER_STATE if key in stored}
        requested = annotations_of(change.obj)
        state = {key: requested[key] for key in SERVER_STATE if key in requested}
        if state == retained:
            return
        others = {key: value for key, value in requested.items() if key not in SERVER_STATE}
        metadata(change.obj)["annotations"] = {**others, **retained}
        changed = sorted(key for key in SERVER_STATE if state.get(key) != retained.get(key))
        change.warnings.extend(f"metadata.annotations[{key}] is set by the server only; it was kept" for key in changed)

    return rule


def _record_waker(change: Change) -> None:
    """Notes the requester as the one who wakes an instance up that is asleep, if the change asks for that."""
    old = change.old
    if old is None or not sleep_type_of(old):
        return
    requested = annotations_of(change.obj)
    withdraws = is_forced(old) and requested.get(FORCE) != "true"
    if not withdraws and requested.get(LAST_ACTIVITY) == annotations_of(old).get(LAST_ACTIVITY):
        return
    if decode_info(change.obj).get("user") != change.user.name:
        info = encode_info("Command", f"woken up by {change.user.name}", change.user.name)
        metadata(change.obj)["annotations"] = {**requested, LAST_ACTIVITY_INFO: info}


def check_delete_after(authorize: Authorize, api_group: str) -> Rule:
    """Having an existing instance deleted earlier, by its annotation `delete-after`, needs the permission to delete
    it."""

    @applies_to(lambda kind, verb: verb not in ("create", "delete") and is_resource(kind, api_group, *_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.old is None or change.is_move or change.subresource:
            return
        after = parse_seconds(annotations_of(change.obj).get(DELETE_AFTER))
        before = parse_seconds(annotations_of(change.old).get(DELETE_AFTER))
        if not after or 0 < before <= after:
            return
        target = change.kind.request("delete", metadata(change.obj).get("namespace", ""), name_of(change.obj))
        if not authorize(change.user, target).allowed:
            why = f'User "{change.user.name}" may not delete it, and a shorter {DELETE_AFTER} needs that permission'
            raise forbidden(change, why)

    return rule


def warn_invalid_sleep(api_group: str) -> Rule:
    """Warns about schedules and times that are ignored, since they make no sense."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *_INSTANCES, *_TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER:
            return
        known = list(_annotations_in(change.old)) if change.old is not None else []
        for found in _annotations_in(change.obj):
            if found not in known:
                change.warnings.extend(find_problems(found))
        hold = annotations_of(change.obj).get(HOLD_UNTIL)
        is_new = change.old is None or annotations_of(change.old).get(HOLD_UNTIL) != hold
        if hold and is_new and not read_hold(change.obj, int(registry.clock.now().timestamp())):
            change.warnings.append(f"{HOLD_UNTIL} is ignored: it is not a time in Unix seconds, at most 24 hours ahead")

    return rule


def _annotations_in(obj: Object) -> Iterator[Mapping[str, str]]:
    """Those of an instance, and those that a template has for its instances."""
    yield annotations_of(obj)
    versions = get_path(obj, "spec.versions")
    templates = [get_path(obj, "spec.template")]
    templates += [each.get("template") for each in versions if isinstance(each, dict)] if versions else []
    for template in templates:
        found = get_path(template, "instanceTemplate.metadata.annotations") if isinstance(template, dict) else None
        if isinstance(found, dict):  # what parameters fill in is not known here
            yield {key: text for key, text in found.items() if "{{" not in str(text)}
