"""Virtual clusters, spaces and workspaces have a list in common: what lives in projects, of one project or of all."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from fairlead.cli.durations import since
from fairlead.cli.flags import OfProjectFlag
from fairlead.cli.listing import Listing, Shown, show_list
from fairlead.cli.objects import owner_of, text
from fairlead.cli.session import connected, namespace_prefix
from fairlead.core.objects import Object, dig, name_of


@dataclass(frozen=True, slots=True)
class Asked:
    project: OfProjectFlag = None
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True, slots=True)
class Sort:
    """One kind of instance. `place` is the column that says where it runs, and the field that has it."""

    plural: str
    kind: str
    place: tuple[str, str]
    nothing: str


def show_instances(sort: Sort, asked: Asked) -> None:
    with connected(asked.shown.context) as session:
        prefix = namespace_prefix(session.client)
        listing = listing_of(sort, prefix)
        if asked.project:
            listing = replace(listing, namespace=prefix + asked.project, nothing=f"{sort.nothing} in {asked.project}")
        show_list(session.client, listing, asked.shown)


def listing_of(sort: Sort, prefix: str) -> Listing:
    """The list of a server whose projects have namespaces that begin with `prefix`."""
    header, at = sort.place

    def row(instance: Object, now: datetime) -> Sequence[str]:
        return (
            name_of(instance),
            text(instance, "metadata.namespace").removeprefix(prefix),
            phase_of(instance),
            owner_of(instance),
            template_of(instance),
            text(instance, at),
            since(dig(instance, "metadata.creationTimestamp"), now),
        )

    columns = ("NAME", "PROJECT", "PHASE", "OWNER", "TEMPLATE", header, "AGE")
    return Listing(sort.plural, sort.kind, columns, row, sort.nothing)


def phase_of(instance: Object) -> str:
    """An instance that nobody has looked at yet is pending."""
    return (
        "Deleting" if dig(instance, "metadata.deletionTimestamp") else str(dig(instance, "status.phase") or "Pending")
    )


def template_of(instance: Object) -> str:
    version = dig(instance, "spec.templateRef.version")
    return text(instance, "spec.templateRef.name") + (f"@{version}" if version else "")


def why(instance: Object) -> str:
    """The phase with whatever the server says about it."""
    reason, message = dig(instance, "status.reason"), dig(instance, "status.message")
    told = ": ".join(str(each) for each in (reason, message) if each)
    return f"{phase_of(instance)} ({told})" if told else phase_of(instance)
