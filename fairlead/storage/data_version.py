"""The version of the data in a store: a record beside the objects, the same in every type of store.

    version          the newest migration that has been applied; 0 if the record is missing, as in data of 0.1
    minimumVersion   programs that know fewer migrations than this must not use the data
    minimumRelease   the first release that may use it, for the message of those that may not
    release          the newest release that has started on the data
    migration        who migrates at the moment, and renews this record to show that it is alive

Replicas of two consecutive releases share a store during an upgrade. So data of a newer version is accepted as long as
`minimumVersion` allows it: a migration that older programs cannot cope with raises it. Backups and copies contain the
record, so restored data is migrated like any other.

The layout of a store, its SQL tables or its keys in etcd, has a version of its own, which is checked first. Each type
of store counts its own. Beside the number, a store records who can use the layout, so that an older program can name
the release that it needs in its message, or continue during an upgrade if only things were added that it does not use.
"""

import re

import msgspec

from fairlead.storage.contract import Key, Store, StoreUnavailable, Write

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


VERSION_KEY: Key = ("", "versions", "", "data")
"""No kind serves this record, so it appears in no list or watch."""


class MigrationLock(msgspec.Struct, frozen=True, omit_defaults=True):
    """A migration in progress. Each renewal changes the number, so that others see that the holder is alive."""

    target: int
    holder: str
    renewals: int = 0
    prepared: int = 0
    """The target of the last migration that was prepared, as with a backup. If it is not 0, records may have changed
    already, whichever server has changed them."""


class DataVersion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    version: int = 0
    minimum_version: int = 0
    minimum_release: str = ""
    release: str = ""
    migration: MigrationLock | None = None


class _VersionRecord(DataVersion, frozen=True, rename="camel"):
    """The stored form: like all values in a store, it says what it is."""

    api_version: str = "v1"
    kind: str = "DataVersion"
    metadata: dict[str, str] = msgspec.field(default_factory=lambda: {"name": "data"})


class NewerData(StoreUnavailable):
    """The data needs a newer program. The message says which one."""


def check_readable(
    found: DataVersion, known: int, release: str, data: str = "the data in the store", advice: str = RESTORE_ADVICE
) -> None:
    """Raises NewerData if a program that knows `known` migrations must not use the data."""
    if found.minimum_version > known:
        raise NewerData(
            f"{data} needs Fairlead {found.minimum_release} or newer, and this is {release}: a newer version has "
            f"migrated it (data version {found.version}, this one knows {known}); install Fairlead "
            f"{found.minimum_release} or newer, {advice}"
        )


def parse_release(release: str) -> tuple[int, ...]:
    """The numbers of a release, for comparisons: 0.2.0, 0.2.0rc1 and 0.2.0.dev3 count as the same."""
    found = re.match(r"\d+(\.\d+)*", release)
    numbers = tuple(map(int, found[0].split("."))) if found else ()
    return (*numbers, 0, 0, 0)[:3]


async def load_version(store: Store) -> tuple[DataVersion | None, int]:
    """The version of the data, None if there is no record; and the revision to expect when replacing it."""
    record = await store.read(VERSION_KEY)
    if record is None:
        return None, 0
    return decode_version(record.value), record.revision


def decode_version(value: bytes) -> DataVersion:
    """Raises StoreUnavailable if the record is not readable."""
    try:
        return msgspec.json.decode(value, type=DataVersion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreUnavailable(
            f"the record of the data version in the store is not readable ({error}); restore a backup"
        ) from error


async def save_version(store: Store, version: DataVersion, expected: int) -> int:
    """Store the version, and return the revision. Raises RevisionConflict if another server was faster."""
    return await store.commit([Write(VERSION_KEY, encode_version(version), expected)])


def encode_version(version: DataVersion) -> bytes:
    fields = {name: getattr(version, name) for name in DataVersion.__struct_fields__}
    return msgspec.json.encode(_VersionRecord(**fields))
