"""Keeps credentials out of the audit log: in objects, URIs and texts. Also which requests involve credentials.

Objects (`redact_object`, called in the writer thread): for a kind with sensitive fields, these are redacted, and so is
everything that the kind's schema does not declare, because a new, misspelt or misplaced field may hold a credential.
For other kinds, fields with sensitive names are redacted. managedFields are dropped.

Texts (`sanitize`, `request_uri`): clients choose paths, queries and names, and users paste keys in the wrong place.
Anything that looks like a key is redacted. Only known query parameters are logged with their values.

Requests (`CredentialRequests`): those that return, accept or change a credential are recorded whatever the policy says.
The kinds' declarations say which. Some subresources are listed by name, because their response is no stored field.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fairlead.core.call import Target
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema, anything, array, boolean, integer, mapping, obj, string
from fairlead.registry.secret_fields import REDACTED, redact

LONGEST_ANNOTATION = 256

SUSPICIOUS = (
    *("accesskey", "apikey", "authorization", "clientkeydata", "connectordata", "credential", "credentials"),
    *("kubeconfig", "passphrase", "passwd", "password", "privatekey", "secret", "secretkey", "token"),
)
"""Suffixes of field names whose values are redacted in every kind. Case, `-` and `_` are ignored."""

DOCUMENTS = frozenset({"lastappliedobjects", "manifests", "objects", "parameters", "raw", "script", "values"})
"""Fields that contain embedded YAML or scripts, which often include credentials."""

_SHORT_WORDS = re.compile(r"[A-Za-z0-9 ._/-]{0,64}", re.ASCII)
"""An annotation value that is a few words, not a structured text."""

_TYPES: Mapping[str, Any] = {"apiVersion": string(), "kind": string()}
_OWNER = obj(apiVersion=string(), kind=string(), name=string(), uid=string(), controller=boolean())
_OWNER["properties"]["blockOwnerDeletion"] = boolean()
_TIME = string()
_METADATA = obj(
    name=string(),
    generateName=string(),
    namespace=string(),
    uid=string(),
    resourceVersion=string(),
    generation=integer(),
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=integer(),
    labels=mapping(string()),
    annotations=mapping(string()),
    ownerReferences=array(_OWNER),
    finalizers=array(string()),
)
DELETE_OPTIONS = obj(
    **_TYPES,
    gracePeriodSeconds=integer(),
    preconditions=obj(uid=string(), resourceVersion=string()),
    orphanDependents=boolean(),
    propagationPolicy=string(),
    dryRun=array(string()),
)

_SCALARS: Mapping[type, tuple[str, ...]] = {
    str: ("string",),
    int: ("integer", "number"),
    float: ("number",),
    bool: ("boolean",),
}


def cleansed(value: Any, kind: Kind) -> Any:
    """Redacts an object of the kind, or a part of one as in a patch. May modify the argument."""
    if not isinstance(value, dict):
        return REDACTED if kind.secret else masked(value)
    if isinstance(value.get("metadata"), dict):
        value["metadata"].pop("managedFields", None)
    schema = {"type": "object", "properties": {**_TYPES, "metadata": _METADATA, **kind.fields}}
    result: Object = known(redact(value, kind.secret), schema) if kind.secret else declared(masked(value), schema)
    _cleanse_annotations(result, bool(kind.secret))
    return result


def without_fields(value: Any, kind: Kind) -> Any:
    """Redacts a PartialObjectMetadata, and drops everything else."""
    if not isinstance(value, dict):
        return REDACTED
    return cleansed({name: value[name] for name in ("apiVersion", "kind", "metadata") if name in value}, kind)


def known(value: Any, schema: Schema) -> Any:
    """Keeps values that the schema declares with this type, and redacts everything else."""
    if value is None or value == "":
        return value
    if isinstance(value, dict):
        return _known_structure(value, schema)
    if isinstance(value, list):
        return [known(each, schema["items"]) for each in value] if schema.get("type") == "array" else REDACTED
    if schema.get("x-kubernetes-int-or-string") or schema.get("type") in _SCALARS[type(value)]:
        return REDACTED if schema.get("format") == "password" else value
    return REDACTED


def _known_structure(value: Object, schema: Schema) -> Any:
    if schema.get("type") != "object":
        return REDACTED
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields and not isinstance(others, dict):
        return REDACTED  # a free-form object
    unknown = others if isinstance(others, dict) else anything()
    return {
        name: REDACTED if is_opaque(name) and isinstance(each, str) else known(each, fields.get(name, unknown))
        for name, each in value.items()
    }


def masked(value: Any) -> Any:
    """Redacts the values of fields with sensitive names."""
    if isinstance(value, list):
        return [masked(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: REDACTED if is_opaque(name) and isinstance(each, str | int | float) else masked(each)
        for name, each in value.items()
    }


def declared(value: Any, schema: Schema) -> Any:
    """Redacts fields that the schema does not declare, for a kind without sensitive fields.

    Such a field was rejected or pruned. It is not part of the object, and may belong to another kind.
    """
    if isinstance(value, list):
        return [declared(each, schema["items"]) for each in value] if "items" in schema else value
    if not isinstance(value, dict):
        return value
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields:
        return {name: declared(each, others) for name, each in value.items()} if isinstance(others, dict) else value
    return {
        name: declared(each, fields[name]) if name in fields else each if _is_directive(name) else REDACTED
        for name, each in value.items()
    }


def _is_directive(name: str) -> bool:
    """Whether this is a directive of a strategic merge patch, not a field."""
    return name == "$patch" or name.startswith(("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"))


def is_opaque(name: str) -> bool:
    """Whether the value of a field with this name is redacted in every kind."""
    plain = name.replace("-", "").replace("_", "").lower()
    return plain.endswith(SUSPICIOUS) or plain in DOCUMENTS


def cleansed_json_patch(operations: Any, kind: Kind) -> Any:
    """Operations and paths of a JSON patch. For a kind with sensitive fields, all values are redacted."""
    if not isinstance(operations, list):
        return REDACTED
    return [_cleansed_operation(operation, kind) for operation in operations]


def _cleansed_operation(operation: Any, kind: Kind) -> Any:
    if not isinstance(operation, dict):
        return REDACTED
    result: Object = {}
    for name in ("op", "from", "path"):
        if name in operation:
            result[name] = operation[name] if isinstance(operation[name], str) else REDACTED
    if "value" in operation:
        path = str(operation.get("path", ""))
        opaque = bool(kind.secret) or "managedFields" in path or is_opaque(path.rpartition("/")[2])
        result["value"] = REDACTED if opaque else masked(operation["value"])
    return result


def _cleanse_annotations(shown: Object, strictly: bool) -> None:
    """Redacts annotations that hold whole objects, as tools store them, credentials included.

    For a kind with sensitive fields, only short plain values stay.
    """
    metadata = shown.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return
    for name, value in annotations.items():
        text = str(value)
        whole = name == LAST_APPLIED or len(text) > LONGEST_ANNOTATION or text.lstrip().startswith(("{", "[", '"', "'"))
        if value is not None and (whole or (strictly and not _SHORT_WORDS.fullmatch(text))):
            annotations[name] = REDACTED


MARK = "REDACTED"
"""Replaces redacted parts of a URI or text. No brackets, because it must be valid in a URI."""

LONGEST_URI, LONGEST_TEXT = 4_096, 1_024
_CUT = "..."

PARAMETERS = frozenset(
    {
        *("allowWatchBookmarks", "continue", "dryRun", "explain", "fieldManager", "fieldSelector", "fieldValidation"),
        *("force", "gracePeriodSeconds", "hash", "includeObject", "labelSelector", "limit", "orphanDependents"),
        *("pretty", "propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout"),
        *("timeoutSeconds", "verbose", "watch"),
    }
)
"""Query parameters that are logged with their values. Of all others, only the names are logged."""

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_LONG_WORDS = re.compile(r"[A-Za-z0-9_-]{32,}")
_URL_SAFE = re.compile(r"[A-Za-z0-9/._~:@!$'()*+,;=-]*")
_TERM = re.compile(r"([^=!]+)(?:==|!=|=)[^=!]*")


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """Redacts what looks like a key or token, and truncates the text.

    Random tokens mix upper and lower case; object names, hashes and uids do not. So most texts need no regex search.
    """
    if len(text) >= 32 and text != text.lower():
        text = _LONG_WORDS.sub(_judged, text)
    return text if len(text) <= longest else text[:longest] + _CUT


def _judged(match: re.Match[str]) -> str:
    word = match[0]
    return MARK if word != word.lower() and word != word.upper() else word


def request_uri(path: str, query: Mapping[str, list[str]], kinds: Sequence[Kind]) -> str:
    """The request URI, rebuilt from the parsed path and query, and redacted."""
    path = shown(path if _URL_SAFE.fullmatch(path) else quote(path, safe="/:@!$'()*+,;=~"), LONGEST_URI)
    if not query:
        return path
    pairs = [_parameter(name, value, kinds) for name, values in query.items() for value in values]
    return f"{path}?{'&'.join(pairs)}"[:LONGEST_URI]


def _parameter(name: str, value: str, kinds: Sequence[Kind]) -> str:
    if name not in PARAMETERS:
        return f"{shown(quote(name, safe=''))}={MARK if value else ''}"
    if name == "fieldSelector" and not _may_be_shown(value, kinds):
        return f"{name}={MARK}"
    return f"{name}={shown(value if value.isalnum() and value.isascii() else quote(value, safe='/:,'), LONGEST_URI)}"


def _may_be_shown(selector: str, kinds: Sequence[Kind]) -> bool:
    """Whether a field selector only names non-sensitive fields. Clients also send selectors that are not supported."""
    fields = {*_fields(selector)}
    return bool(kinds) and all(not kind.secret or fields <= {*_METADATA_FIELDS, *kind.selectable} for kind in kinds)


def _fields(selector: str) -> Sequence[str]:
    """The fields of a selector. Matches term by term: a regex search over untrusted text would take quadratic time."""
    terms = [_TERM.fullmatch(term) for term in selector.split(",")]
    fields = [term[1] for term in terms if term is not None]
    return fields if len(fields) == len(terms) else [selector]


def address(client: str) -> str:
    """The IP address of `address:port`."""
    return client.rpartition(":")[0].strip("[]")


WRITES = frozenset({"create", "update", "patch"})
READS = frozenset({"get", "list", "watch"})

LOGIN = "/auth/"
"""All paths below this prefix handle logins."""

SUBRESOURCES = frozenset({"accesskey", "accesskeys", "kubeconfig", "profile", "resetaccesskey", "rotate", "token"})
RESOURCES = ("accesskeys", "tokens", "tokenkeyrotations")
"""Suffixes of resources whose creation returns a credential, in case their kind does not declare it."""

Asked = tuple[str, str, str, str]
"""Verb, group, resource and subresource."""


class Credentials:
    """The requests of a catalog's kinds that involve credentials."""

    def __init__(self, catalog: Catalog) -> None:
        self._known = frozenset(asked for kind in catalog.kinds for asked in _asked(kind))

    def concern(self, target: Target) -> bool:
        """Whether the request involves a credential. Errs on the side of yes."""
        if not target.is_resource:
            return target.path.startswith(LOGIN)
        if target.subresource in SUBRESOURCES:
            return True
        if target.verb in WRITES and target.resource.endswith(RESOURCES):
            return True
        return (target.verb, target.group, target.resource, target.subresource) in self._known


def _asked(kind: Kind) -> Iterator[Asked]:
    for verb in _verbs(kind):
        for subresource in ("", *kind.subresources):
            yield verb, kind.group, kind.plural, subresource
    for action in kind.actions:
        if (action.kind or kind).secret:
            for verb in action.verbs:
                yield verb, kind.group, kind.plural, action.name


def _verbs(kind: Kind) -> frozenset[str]:
    """Writes to a kind with sensitive fields always count; reads only if the response includes these fields."""
    if not kind.secret:
        return frozenset()
    return WRITES if set(kind.secret) <= set(kind.hidden) else WRITES | READS
