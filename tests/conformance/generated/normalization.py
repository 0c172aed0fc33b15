"""Answers without what differs between runs and servers: the rest has to be equal.

Names, uids, versions and times become placeholders. Equal values become equal placeholders, so "the version did not
change" is compared as well. What no client may depend on is left out: messages, the number of remaining items, columns
of tables but the first, and the text of warnings.
"""

import re
from dataclasses import dataclass, field
from typing import Any

Json = Any

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_MICRO_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GENERATED = re.compile(r"(g-<run>-)[a-z0-9]{5}\b")
_LEFT_OUT_OF_STATUS = ("message", "metadata", "details")
SENT_TIMES = frozenset({"2020-01-01T00:00:00Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"})
"""Times that requests contain. They are compared as they are: where a sent one is kept or ignored is behaviour."""


@dataclass(slots=True)
class Normalizer:
    """Replaces what differs. One for each play of a life, since placeholders are numbered in order of appearance."""

    run: str
    prefix: str = ""
    _uids: dict[str, int] = field(default_factory=dict)
    _versions: dict[tuple[str, str], int] = field(default_factory=dict)

    def text(self, text: str) -> str:
        if text in {version for _, version in self._versions}:
            return "<copied version>"
        text = text.replace(self.prefix + "/", "/") if self.prefix else text
        text = _GENERATED.sub(r"\1<generated>", text.replace(self.run, "<run>"))
        text = _UUID.sub(lambda match: self._uid(match[0]), text)
        text = _MICRO_TIME.sub(lambda match: match[0] if match[0] in SENT_TIMES else "<microtime>", text)
        return _TIME.sub(lambda match: match[0] if match[0] in SENT_TIMES else "<time>", text)

    def value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("kind") == "Status" and value.get("apiVersion") == "v1":
            return self._status(value)
        if value.get("kind") == "Table":
            return self._table(value)
        if isinstance(value.get("items"), list) and str(value.get("kind")).endswith("List"):
            return self._list(value)
        return self._object(value)

    def event(self, event: Json) -> Json:
        """A watch event. Of a bookmark only the metadata counts; the columns of a Table are known since the first."""
        normal = self.value(event["object"])
        if event["type"] == "BOOKMARK":
            normal = {key: each for key, each in normal.items() if key in ("apiVersion", "kind", "metadata", "rows")}
        return {"type": event["type"], "object": {key: each for key, each in normal.items() if key != "columns"}}

    def _uid(self, uid: str) -> str:
        if len(set(uid) - {"-"}) == 1:
            return uid  # one that a request contains: 11111111-1111-…
        return f"<uid {self._uids.setdefault(uid, len(self._uids) + 1)}>"

    def _object(self, value: Json) -> Json:
        normal = {}
        if isinstance(value.get("metadata"), dict):
            normal["metadata"] = self._metadata(value["metadata"])
        return normal | {self.text(key): self.value(each) for key, each in value.items() if key not in normal}

    def _metadata(self, metadata: Json) -> Json:
        normal: Json = {}
        for key, value in metadata.items():
            if key == "resourceVersion" and isinstance(value, str) and value:
                normal[key] = self._version(metadata.get("uid"), value)
            elif key == "managedFields" and isinstance(value, list):
                normal[key] = sorted((self._managed(entry) for entry in value), key=repr)
            elif key == "continue":
                normal |= {key: "<continue>"} if value else {}
            elif key == "remainingItemCount":
                normal[key] = "<count>"
            elif value is not None:
                normal[self.text(key)] = self.value(value)
        return normal

    def _version(self, uid: Json, version: str) -> str:
        if not isinstance(uid, str):
            return "<version of the collection>"
        if not version.isdigit() or len(version) == 1:
            return version
        return f"<version {self._versions.setdefault((uid, version), len(self._versions) + 1)}>"

    def _managed(self, entry: Json) -> Json:
        names = ("manager", "operation", "subresource", "apiVersion")
        normal = {name: entry[name] for name in names if name in entry}
        return normal | {"fields": sorted(self.text(path) for path in _leaves(entry.get("fieldsV1") or {}))}

    def _status(self, status: Json) -> Json:
        normal = {key: self.value(value) for key, value in status.items() if key not in _LEFT_OUT_OF_STATUS}
        details = dict(status.get("details") or {})
        details.pop("retryAfterSeconds", None)
        if isinstance(causes := details.get("causes"), list):
            details["causes"] = sorted({f"{cause.get('field', '')}: {cause.get('reason', '')}" for cause in causes})
        details = {key: self.value(value) for key, value in details.items()}
        return {key: value for key, value in (normal | {"details": details}).items() if value}

    def _table(self, table: Json) -> Json:
        columns = [(column.get("name"), column.get("type")) for column in table.get("columnDefinitions") or []][:1]
        rows = [
            {"first": self.value((row.get("cells") or [None])[0]), "object": self.value(row.get("object"))}
            for row in table.get("rows") or []
        ]
        metadata = self._metadata(table.get("metadata") or {})
        return {"kind": "Table", "metadata": metadata, "columns": [list(column) for column in columns], "rows": rows}

    def _list(self, value: Json) -> Json:
        items = [
            self.value({k: v for k, v in item.items() if k not in ("kind", "apiVersion")}) for item in value["items"]
        ]
        return self._object({key: each for key, each in value.items() if key != "items"}) | {"items": items}


def _leaves(fields: Json, path: str = "") -> list[str]:
    """The paths of a field set: `f:spec/f:icon`."""
    if not isinstance(fields, dict) or not fields:
        return [path]
    return [leaf for key, inner in fields.items() for leaf in _leaves(inner, f"{path}/{key}" if path else key)]
