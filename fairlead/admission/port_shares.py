"""Admission of the annotation with which ports of a workspace are shared (`domain/port_shares.py`).

Who shares a port lets others use a part of the workspace. So that needs the permission to use it: the permission to
update its object is not enough. A new owner has not shared anything, and neither have the members of another project:
for them, the shares of before end. One of an editor would be access to all that the new owner has there.

A share with a user gets the uid of that user, so that it is not with a later one of the same name, and each share says
who shares the port.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from fairlead.admission import Rule, applies_to, forbidden, invalid, is_resource
from fairlead.admission.secret_references import writer_name
from fairlead.core.call import Authorize
from fairlead.core.clock import Clock
from fairlead.core.objects import Object, annotations_of, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.port_shares import MAX_SHARE_SECONDS, SHARES_ANNOTATION, PortShare, format_shares, parse_shares
from fairlead.kinds.access.users import USER
from fairlead.kinds.instances.workspace import USE, WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change, Problem
from fairlead.registry.registry import Registry

PATH = f"metadata.annotations[{SHARES_ANNOTATION}]"


def check_port_shares(authorize: Authorize, clock: Clock, api_group: str) -> Rule:
    """Checks the form of new shares, how long they last, and that the requester may use the workspace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.subresource:
            return
        if change.is_move or _has_new_owner(change):
            (metadata(change.obj).get("annotations") or {}).pop(SHARES_ANNOTATION, None)
            return
        text = _shares_of(change.obj)
        before = _shares_of(change.old) if change.old is not None else ""
        if not text or text == before:
            return
        target = change.kind.request(USE, metadata(change.obj).get("namespace", ""), name_of(change.obj))
        if not authorize(change.user, target).allowed:
            why = f'User "{change.user.name}" may not use it, and sharing its ports needs that permission'
            raise forbidden(change, why)
        try:
            if change.old is None:
                raise ValueError("create the workspace first, then share its ports")
            find_uid = partial(_find_uid, registry, api_group)
            shares = format_shares(_complete(text, before, change.user, find_uid, clock.now().timestamp()))
        except ValueError as error:
            raise invalid(change, Problem.forbidden(PATH, str(error))) from None
        meta = metadata(change.obj)
        meta["annotations"] = {**meta["annotations"], SHARES_ANNOTATION: shares}

    return rule


def _has_new_owner(change: Change) -> bool:
    owner = get_path(change.obj, "spec.owner")
    return change.old is not None and bool(owner) and owner != get_path(change.old, "spec.owner")


def _shares_of(workspace: Object) -> str:
    return str(annotations_of(workspace).get(SHARES_ANNOTATION) or "")


def _complete(text: str, before: str, user: User, find_uid: Callable[[str], str | None], now: float) -> list[PortShare]:
    """The shares with what the server adds. Raises ValueError, with what is wrong."""
    shares = parse_shares(text)
    try:
        known = parse_shares(before) if before else []
    except ValueError:
        known = []
    added = [_complete_share(each, known, find_uid, now) for each in shares]
    by = user.name if user.uid else writer_name(user)
    return [each if each.by else msgspec.structs.replace(each, by=by, by_uid=user.uid) for each in added]


def _complete_share(
    share: PortShare, known: Sequence[PortShare], find_uid: Callable[[str], str | None], now: float
) -> PortShare:
    """One that is there already stays as it is, also if there is another user of that name by now."""
    same = next((each for each in known if each.is_same(share)), None)
    if same is not None:
        return same
    if share.until > now + MAX_SHARE_SECONDS:
        days = MAX_SHARE_SECONDS // 86400
        raise ValueError(f"the share of port {share.port} ends too late: at most {days} days from now")
    if share.uid or share.by or share.by_uid:
        raise ValueError(f"the share of port {share.port} has a uid or by, which only the server sets; leave it out")
    if share.project:
        return share
    uid = find_uid(share.user)
    if uid is None:
        raise ValueError(f'there is no user "{share.user}" to share port {share.port} with')
    return msgspec.structs.replace(share, uid=uid)


def _find_uid(registry: Registry, api_group: str, name: str) -> str | None:
    entry = registry.resource(api_group, USER.plural).get_cached("", name)
    return str(metadata(decode(entry))["uid"]) if entry is not None else None
