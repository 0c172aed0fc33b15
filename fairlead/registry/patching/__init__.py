"""Patch formats, server-side apply, and field ownership (managedFields).

json_patch.py merge_patch.py     JSON patch (RFC 6902) and JSON merge patch (RFC 7386)
strategic_merge.py               Kubernetes' strategic merge patch
apply.py merge.py type_check.py  server-side apply: conflicts, merging, type checks of the configuration
managed_fields.py                which manager owns which fields, recorded on every write
field_set.py field_walk.py       sets of field paths (FieldsV1), and how they are computed from objects
merge_schema.py                  a kind's schema reduced to what ownership and merging need
"""
