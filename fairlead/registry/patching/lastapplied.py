"""From `kubectl apply` to `kubectl apply --server-side` on the same object, without conflicts with oneself.

The older way keeps what was applied in an annotation, and its fields belong to an entry for updates. Whoever goes on as
the manager `kubectl` may take those over, as long as nobody has changed them since. While the annotation is there it
follows what is applied, so that the older way keeps working, too.
"""

import orjson

from fairlead.core import json
from fairlead.core.objects import LAST_APPLIED, Object, dig, metadata
from fairlead.registry.meta import ANNOTATIONS_LIMIT
from fairlead.registry.patching.fieldset import FieldSet, difference
from fairlead.registry.patching.shape import Shape
from fairlead.registry.patching.typed import faults
from fairlead.registry.patching.walks import applied_fields, changed
from fairlead.registry.schema import Schema

KUBECTL = "kubectl"
"""The manager that this is done for. Under any other name, applying is just applying."""


def unchanged_since(live: Object, shape: Shape, schema: Schema) -> FieldSet:
    """The fields that were applied the older way and still are as they were applied."""
    text = (dig(live, "metadata.annotations") or {}).get(LAST_APPLIED)
    try:
        last = json.decode(text.encode()) if text else None
    except json.Malformed:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"] or faults(last, schema):
        return {}
    taken, removed = changed(last, live, shape)
    return difference(difference(applied_fields(last, shape), taken), removed)


def renew(obj: Object, config: Object) -> None:
    """Keeps the annotation in step, if the object has it. One that has become too large goes."""
    annotations = metadata(obj).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    meta = {name: value for name, value in metadata(config).items() if name != "annotations"}
    noted = metadata(config).get("annotations") or {}
    meta["annotations"] = {name: value for name, value in noted.items() if name != LAST_APPLIED}
    annotations[LAST_APPLIED] = _as_kubectl_writes({**config, "metadata": meta})
    if sum(len(name.encode()) + len((value or "").encode()) for name, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[LAST_APPLIED]


_ESCAPED = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _as_kubectl_writes(config: Object) -> str:
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode().translate(_ESCAPED)
