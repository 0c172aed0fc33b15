"""The version of a store's layout: its SQL tables, or its keys in etcd. Each type of store counts its own.

Beside the number, a store records who can use the layout, so that an older program can name the release that it needs
in its message, or continue during an upgrade if only things were added that it does not use.
"""

import msgspec

from fairlead.storage.contract import StoreUnavailable

RESTORE_ADVICE = "or restore a backup from before the upgrade"


class LayoutNeeds(msgspec.Struct, frozen=True):
    """Who can use a layout: programs that know at least the version `minimum`, and their first release.

    Both are unknown in stores that were created by a version which did not record them.
    """

    minimum: int = 0
    release: str = ""


def check_layout(name: str, found: int, known: int, needs: LayoutNeeds) -> None:
    """Raises StoreUnavailable if the layout is too new for a program that knows the version `known`."""
    if found <= known or 0 < needs.minimum <= known:
        return
    needed = f"install Fairlead {needs.release} or newer" if needs.release else "install that version again"
    raise StoreUnavailable(
        f"{name}: written by a newer version of Fairlead (layout {found}, this one knows {known}); "
        f"{needed}, {RESTORE_ADVICE}"
    )


def parse_needs(text: str | bytes | None) -> LayoutNeeds:
    """The recorded needs. What is not readable counts as unknown."""
    try:
        return msgspec.json.decode(text, type=LayoutNeeds) if text else LayoutNeeds()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LayoutNeeds()
