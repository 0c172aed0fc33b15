"""Patch formats, server-side apply, and field ownership (managedFields).

json_patch.py merge_patches.py   JSON patch (RFC 6902); JSON merge patch (RFC 7386) and strategic merge patch
apply.py                         server-side apply: conflicts and merging; type checks of the configuration
managed_fields.py                which manager owns which fields, recorded on every write
field_set.py field_walk.py       sets of field paths (FieldsV1), and how they are computed from objects
merge_schema.py                  a kind's schema reduced to what ownership and merging need
"""
