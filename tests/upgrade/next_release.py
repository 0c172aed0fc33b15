"""Runs this source tree as if it were the next release: `python -m tests.upgrade.next_release up ...`.

It has one more migration, one more kind and one more field. Only this module changes them, in its own process; the
product has no setting for it. Run it with one worker, because workers are processes of their own.
"""

import os

import orjson

import fairlead

RELEASE = "9.1.0"
MINIMUM_VARIABLE = "NEXT_RELEASE_MINIMUM"
"""The `minimum_version` of the migration: 0 unless a test sets it."""
NEW_ANNOTATION = "example.com/migrated"
NEW_FIELD = "newField"
NEW_PLURAL = "widgets"


def migrate(key: tuple[str, ...], value: bytes) -> bytes | None:
    """Annotates all ConfigMaps once."""
    if key[1] != "configmaps":
        return None
    obj = orjson.loads(value)
    annotations = obj["metadata"].setdefault("annotations", {})
    if NEW_ANNOTATION in annotations:
        return None
    annotations[NEW_ANNOTATION] = "yes"
    return orjson.dumps(obj)


def become_next_release() -> None:
    """Changes what the modules have before anything else imports it."""
    fairlead.__version__ = RELEASE
    from fairlead import kinds
    from fairlead.kinds.clusters.app import APP
    from fairlead.registry.kind import Kind, Sensitivity
    from fairlead.registry.schema import obj, string

    APP.fields["spec"]["properties"][NEW_FIELD] = string("A field that is new.")
    widget = Kind(
        name="Widget",
        plural=NEW_PLURAL,
        namespaced=True,
        fields={"spec": obj(size=string("A size."))},
        description="A kind that is new.",
        sensitivity=Sensitivity.NORMAL,
    )
    setattr(kinds, "KINDS", (*kinds.KINDS, widget))  # noqa: B010  # the type has the number of kinds
    from fairlead.app import data_migrations
    from fairlead.storage.migration import Migration

    known = data_migrations.MIGRATIONS
    minimum = int(os.environ.get(MINIMUM_VARIABLE, "0"))
    data_migrations.MIGRATIONS = (*known, Migration(len(known) + 1, RELEASE, minimum, "tests", migrate))


if __name__ == "__main__":
    become_next_release()
    from fairlead.__main__ import main

    main()
