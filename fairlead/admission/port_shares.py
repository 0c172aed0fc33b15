"""Admission of the annotation with which ports of a workspace are shared (`domain/port_shares.py`).

Who shares a port lets others use a part of the workspace. So that needs the permission to use it: the permission to
update its object is not enough.
"""

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.port_shares import MAX_SHARE_SECONDS, SHARES_ANNOTATION, parse_shares
from fairlead.kinds.instances.workspace import USE, WORKSPACE
from fairlead.registry.kind import Change, Problem
from fairlead.registry.registry import Registry

PATH = f"metadata.annotations[{SHARES_ANNOTATION}]"


def check_port_shares(authorize: Authorize, clock: Clock, api_group: str) -> Rule:
    """Checks the form of new shares, how long they last, and that the requester may use the workspace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.is_move or change.subresource:
            return
        text = _shares_of(change.obj)
        before = _shares_of(change.old) if change.old is not None else ""
        if not text or text == before:
            return
        name = name_of(change.obj)
        kind = change.kind
        problem = "create the workspace first, then share its ports" if change.old is None else ""
        problem = problem or _find_problem(text, before, clock.now().timestamp())
        if problem:
            raise Invalid.of(kind.name, kind.group, name, [Problem.forbidden(PATH, problem)])
        target = RequestInfo(
            verb=USE,
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            namespace=metadata(change.obj).get("namespace", ""),
            name=name,
        )
        if not authorize(change.user, target).allowed:
            why = f'User "{change.user.name}" may not use it, and sharing its ports needs that permission'
            raise Forbidden.of(kind.plural, kind.group, name, why)

    return rule


def _shares_of(workspace: Object) -> str:
    return str((metadata(workspace).get("annotations") or {}).get(SHARES_ANNOTATION) or "")


def _find_problem(text: str, before: str, now: float) -> str:
    try:
        shares = parse_shares(text)
    except ValueError as error:
        return str(error)
    try:
        known = parse_shares(before) if before else []
    except ValueError:
        known = []
    for share in shares:
        if share not in known and share.until > now + MAX_SHARE_SECONDS:
            return f"the share of port {share.port} ends too late: at most {MAX_SHARE_SECONDS // 86400} days from now"
    return ""
