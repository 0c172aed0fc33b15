"""Marks templates that administrators have written, and takes the mark off when others change what they make.

Objects and charts of a marked template are made with the credential that is stored for a cluster. So the mark is given
by administrators only: a template that one of them creates has it, and any other gets it when one of them sets the
annotation. Changing a template of somebody else is not vouching for the rest of it. Nobody else can set the mark, and
whoever else changes a definition loses it for the template, with a warning.
"""

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import CONTROLLER
from fairlead.kinds.template_trust import DEFINITIONS, FALSE, TRUE, TRUST_ANNOTATION
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

TEMPLATES = ("spacetemplates", "virtualclustertemplates")


def template_trust(api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.new is None:
            return
        before, asked = _mark(change.old), _mark(change.new)
        if change.user.holds_everything:
            mark = asked or before or (TRUE if change.old is None else "")
        else:
            mark = _after_others(change, before, asked)
        _set_mark(change.new, mark)

    return rule


def _after_others(change: Change, before: str, asked: str) -> str:
    """The mark of a template that somebody has written who is no administrator."""
    if asked not in ("", before):
        change.warnings.append(
            f"metadata.annotations[{TRUST_ANNOTATION}]: only administrators set this mark; it stays as it was"
        )
    is_same = all(dig(change.old, f"spec.{each}") == dig(change.new, f"spec.{each}") for each in DEFINITIONS)
    if change.old is not None and is_same:
        return before
    if before == TRUE:
        change.warnings.append(
            "this template was an administrator's and is not any more: what it makes in clusters has from now on no "
            f"more rights than the owner of an instance; an administrator can annotate it with {TRUST_ANNOTATION}=true"
        )
    return FALSE


def _mark(template: Object | None) -> str:
    annotations = metadata(template).get("annotations") if template is not None else None
    found = annotations.get(TRUST_ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _set_mark(template: Object, mark: str) -> None:
    """What is no map is refused later, by the rules of metadata."""
    meta = metadata(template)
    annotations = meta.get("annotations") or {}
    if not isinstance(annotations, dict) or annotations.get(TRUST_ANNOTATION, "") == mark:
        return
    kept = {key: value for key, value in annotations.items() if key != TRUST_ANNOTATION}
    meta["annotations"] = {**kept, TRUST_ANNOTATION: mark} if mark else kept
    if not meta["annotations"]:
        del meta["annotations"]
