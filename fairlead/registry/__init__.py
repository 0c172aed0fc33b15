"""Generic registry: what each API verb does to objects of any kind. Kinds are data; this package interprets them.

kind.py schema.py crds.py              declaring a kind; its OpenAPI schema, and the export as a CRD
registry.py resource.py                all resources; create, get, update, patch, apply and delete for one kind
write_options.py request_body.py       options of a write; decoding and checking the body of a write
no_effect.py                           warnings about fields without effect
validate.py                            schema validation, pruning and defaults; limits.py freeform_limits.py: sizes
object_metadata.py names.py            rules for metadata and for names
write_rules.py                         rules for writes of any kind
codec.py secret_fields.py              stored and served encoding; sensitive and write-only fields
list.py watch.py selectors.py          list and watch; label and field selectors
informer.py                            cached objects of a resource; usage per owner
quota/                                 quotas on what is stored; locks of what is counted
table.py conditions.py                 kubectl tables; status conditions and core Events
namespace_move.py storage_errors.py    moves between namespaces; storage errors as API errors
patching/                              patch formats, server-side apply, managedFields
"""
