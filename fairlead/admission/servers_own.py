"""What the server keeps for itself (hashes of passwords, keys of runners, signing keys) is written by the server alone.

Its secret fields are in no answer, whoever asks; so nobody could send them back rightly either, and whoever could put
others in their place could sign in as somebody else. Administrators may label it, and whoever may delete it can do so:
that lets nobody in.
"""

from fairlead.admission.chain import concerning
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


@concerning(lambda kind, verb: verb != "delete" and kind.has_servers_own)
async def servers_own(change: Change, registry: Registry) -> None:
    kind, old, new = change.kind, change.old, change.new
    if new is None or change.user == CONTROLLER or not (kind.is_the_servers(new) or kind.is_the_servers(old or {})):
        return
    same = old is not None and all(dig(old, path) == dig(new, path) for path in kind.secret)
    if not (same and change.user.holds_everything):
        why = "the server keeps it for itself; choose another type for a secret of your own"
        raise Forbidden.of(kind.plural, kind.group, name_of(new), why)
