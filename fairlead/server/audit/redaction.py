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

from fairlead.core.call import RequestInfo
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.kind import Catalog, Kind
from fairlead.registry.schema import Schema, any_value, array, boolean, integer, mapping, obj, string
from fairlead.registry.secret_fields import REDACTED, redact

MAX_ANNOTATION_LENGTH = 256

SENSITIVE_SUFFIXES = (
    *("accesskey", "apikey", "authorization", "clientkeydata", "connectordata", "credential", "credentials"),
    *("kubeconfig", "passphrase", "passwd", "password", "privatekey", "secret", "secretkey", "token"),
)
"""Suffixes of field names whose values are redacted in every kind. Case, `-` and `_` are ignored."""

OPAQUE_FIELDS = frozenset({"lastappliedobjects", "manifests", "objects", "parameters", "raw", "script", "values"})
"""Fields that contain embedded YAML or scripts, which often include credentials."""

_SHORT_PLAIN_TEXT = re.compile(r"[A-Za-z0-9 ._/-]{0,64}", re.ASCII)
"""An annotation value that is a few words, not a structured text."""

_TYPE_META: Mapping[str, Any] = {"apiVersion": string(), "kind": string()}
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
    **_TYPE_META,
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


def redact_object(value: Any, kind: Kind) -> Any:
    """Redacts an object of the kind, or a part of one as in a patch. May modify the argument."""
    if not isinstance(value, dict):
        return REDACTED if kind.sensitive else redact_sensitive_names(value)
    if isinstance(value.get("metadata"), dict):
        value["metadata"].pop("managedFields", None)
    schema = {"type": "object", "properties": {**_TYPE_META, "metadata": _METADATA, **kind.fields}}
    result: Object = (
        redact_outside_schema(redact(value, kind.sensitive), schema)
        if kind.sensitive
        else redact_undeclared_fields(redact_sensitive_names(value), schema)
    )
    _redact_annotations(result, bool(kind.sensitive))
    return result


def redact_partial_metadata(value: Any, kind: Kind) -> Any:
    """Redacts a PartialObjectMetadata, and drops everything else."""
    if not isinstance(value, dict):
        return REDACTED
    return redact_object({name: value[name] for name in ("apiVersion", "kind", "metadata") if name in value}, kind)


def redact_outside_schema(value: Any, schema: Schema) -> Any:
    """Keeps values that the schema declares with this type, and redacts everything else."""
    if value is None or value == "":
        return value
    if isinstance(value, dict):
        return _redact_object_outside_schema(value, schema)
    if isinstance(value, list):
        return (
            [redact_outside_schema(each, schema["items"]) for each in value]
            if schema.get("type") == "array"
            else REDACTED
        )
    if schema.get("x-kubernetes-int-or-string") or schema.get("type") in _SCALARS[type(value)]:
        return REDACTED if schema.get("format") == "password" else value
    return REDACTED


def _redact_object_outside_schema(value: Object, schema: Schema) -> Any:
    if schema.get("type") != "object":
        return REDACTED
    fields = schema.get("properties", {})
    others = schema.get("additionalProperties")
    if not fields and not isinstance(others, dict):
        return REDACTED  # a free-form object
    unknown = others if isinstance(others, dict) else any_value()
    return {
        name: REDACTED
        if is_sensitive_name(name) and isinstance(each, str)
        else redact_outside_schema(each, fields.get(name, unknown))
        for name, each in value.items()
    }


def redact_sensitive_names(value: Any) -> Any:
    """Redacts the values of fields with sensitive names."""
    if isinstance(value, list):
        return [redact_sensitive_names(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: REDACTED
        if is_sensitive_name(name) and isinstance(each, str | int | float)
        else redact_sensitive_names(each)
        for name, each in value.items()
    }


def redact_undeclared_fields(value: Any, schema: Schema) -> Any:
    """Redacts fields that the schema does not declare, for a kind without sensitive fields.

    Such a field was rejected or pruned. It is not part of the object, and may belong to another kind.
    """
    if isinstance(value, list):
        return [redact_undeclared_fields(each, schema["items"]) for each in value] if "items" in schema else value
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    others = schema.get("additionalProperties")
    if not fields:
        return (
            {name: redact_undeclared_fields(each, others) for name, each in value.items()}
            if isinstance(others, dict)
            else value
        )
    return {
        name: redact_undeclared_fields(each, fields[name])
        if name in fields
        else each
        if _is_directive(name)
        else REDACTED
        for name, each in value.items()
    }


def _is_directive(name: str) -> bool:
    """Whether this is a directive of a strategic merge patch, not a field."""
    return name == "$patch" or name.startswith(("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"))


def is_sensitive_name(name: str) -> bool:
    """Whether the value of a field with this name is redacted in every kind."""
    plain = name.replace("-", "").replace("_", "").lower()
    return plain.endswith(SENSITIVE_SUFFIXES) or plain in OPAQUE_FIELDS


def redact_json_patch(operations: Any, kind: Kind) -> Any:
    """Operations and paths of a JSON patch. For a kind with sensitive fields, all values are redacted."""
    if not isinstance(operations, list):
        return REDACTED
    return [_redact_operation(operation, kind) for operation in operations]


def _redact_operation(operation: Any, kind: Kind) -> Any:
    if not isinstance(operation, dict):
        return REDACTED
    result: Object = {}
    for name in ("op", "from", "path"):
        if name in operation:
            result[name] = operation[name] if isinstance(operation[name], str) else REDACTED
    if "value" in operation:
        path = str(operation.get("path", ""))
        opaque = bool(kind.sensitive) or "managedFields" in path or is_sensitive_name(path.rpartition("/")[2])
        result["value"] = REDACTED if opaque else redact_sensitive_names(operation["value"])
    return result


def _redact_annotations(obj: Object, strict: bool) -> None:
    """Redacts annotations that hold whole objects, as tools store them, credentials included.

    For a kind with sensitive fields, only short plain values stay.
    """
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return
    for name, value in annotations.items():
        text = str(value)
        whole = (
            name == LAST_APPLIED or len(text) > MAX_ANNOTATION_LENGTH or text.lstrip().startswith(("{", "[", '"', "'"))
        )
        if value is not None and (whole or (strict and not _SHORT_PLAIN_TEXT.fullmatch(text))):
            annotations[name] = REDACTED


URI_REDACTED = "REDACTED"
"""Replaces redacted parts of a URI or text. No brackets, because it must be valid in a URI."""

MAX_URI_LENGTH, MAX_TEXT_LENGTH = 4_096, 1_024
_ELLIPSIS = "..."

SAFE_PARAMETERS = frozenset(
    {
        *("allowWatchBookmarks", "continue", "dryRun", "explain", "fieldManager", "fieldSelector", "fieldValidation"),
        *("force", "gracePeriodSeconds", "hash", "includeObject", "labelSelector", "limit", "orphanDependents"),
        *("pretty", "propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout"),
        *("timeoutSeconds", "verbose", "watch"),
    }
)
"""Query parameters that are logged with their values. Of all others, only the names are logged."""

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_TOKEN_LIKE = re.compile(r"[A-Za-z0-9_-]{32,}")
_URL_SAFE = re.compile(r"[A-Za-z0-9/._~:@!$'()*+,;=-]*")
_SELECTOR_TERM = re.compile(r"([^=!]+)(?:==|!=|=)[^=!]*")


def sanitize(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Redacts what looks like a key or token, and truncates the text.

    Random tokens mix upper and lower case; object names, hashes and uids do not. So most texts need no regex search.
    """
    if len(text) >= 32 and text != text.lower():
        text = _TOKEN_LIKE.sub(_redact_mixed_case, text)
    return text if len(text) <= max_length else text[:max_length] + _ELLIPSIS


def _redact_mixed_case(match: re.Match[str]) -> str:
    word = match[0]
    return URI_REDACTED if word != word.lower() and word != word.upper() else word


def request_uri(path: str, query: Mapping[str, list[str]], kinds: Sequence[Kind]) -> str:
    """The request URI, rebuilt from the parsed path and query, and redacted."""
    path = sanitize(path if _URL_SAFE.fullmatch(path) else quote(path, safe="/:@!$'()*+,;=~"), MAX_URI_LENGTH)
    if not query:
        return path
    pairs = [_format_parameter(name, value, kinds) for name, values in query.items() for value in values]
    return f"{path}?{'&'.join(pairs)}"[:MAX_URI_LENGTH]


def _format_parameter(name: str, value: str, kinds: Sequence[Kind]) -> str:
    if name not in SAFE_PARAMETERS:
        return f"{sanitize(quote(name, safe=''))}={URI_REDACTED if value else ''}"
    if name == "fieldSelector" and not _is_safe_selector(value, kinds):
        return f"{name}={URI_REDACTED}"
    return (
        f"{name}={sanitize(value if value.isalnum() and value.isascii() else quote(value, safe='/:,'), MAX_URI_LENGTH)}"
    )


def _is_safe_selector(selector: str, kinds: Sequence[Kind]) -> bool:
    """Whether a field selector only names non-sensitive fields. Clients also send selectors that are not supported."""
    fields = {*_selector_fields(selector)}
    return bool(kinds) and all(not kind.sensitive or fields <= {*_METADATA_FIELDS, *kind.selectable} for kind in kinds)


def _selector_fields(selector: str) -> Sequence[str]:
    """The fields of a selector. Matches term by term: a regex search over untrusted text would take quadratic time."""
    terms = [_SELECTOR_TERM.fullmatch(term) for term in selector.split(",")]
    fields = [term[1] for term in terms if term is not None]
    return fields if len(fields) == len(terms) else [selector]


def client_ip(client: str) -> str:
    """The IP address of `address:port`."""
    return client.rpartition(":")[0].strip("[]")


WRITE_VERBS = frozenset({"create", "update", "patch"})
READ_VERBS = frozenset({"get", "list", "watch"})

LOGIN_PREFIX = "/auth/"
"""All paths below this prefix handle logins."""

CREDENTIAL_SUBRESOURCES = frozenset(
    {"accesskey", "accesskeys", "kubeconfig", "profile", "resetaccesskey", "rotate", "token"}
)
CREDENTIAL_RESOURCE_SUFFIXES = ("accesskeys", "tokens", "tokenkeyrotations")
"""Suffixes of resources whose creation returns a credential, in case their kind does not declare it."""

RequestSignature = tuple[str, str, str, str]
"""Verb, group, resource and subresource."""


class CredentialRequests:
    """The requests of a catalog's kinds that involve credentials."""

    def __init__(self, catalog: Catalog) -> None:
        self._signatures = frozenset(signature for kind in catalog.kinds for signature in _signatures_of(kind))

    def matches(self, target: RequestInfo) -> bool:
        """Whether the request involves a credential. Errs on the side of yes."""
        if not target.is_resource:
            return target.path.startswith(LOGIN_PREFIX)
        if target.subresource in CREDENTIAL_SUBRESOURCES:
            return True
        if target.verb in WRITE_VERBS and target.resource.endswith(CREDENTIAL_RESOURCE_SUFFIXES):
            return True
        return (target.verb, target.group, target.resource, target.subresource) in self._signatures


def _signatures_of(kind: Kind) -> Iterator[RequestSignature]:
    for verb in _credential_verbs(kind):
        for subresource in ("", *kind.subresources):
            yield verb, kind.group, kind.plural, subresource
    for action in kind.actions:
        if (action.kind or kind).sensitive:
            for verb in action.verbs:
                yield verb, kind.group, kind.plural, action.name


def _credential_verbs(kind: Kind) -> frozenset[str]:
    """Writes to a kind with sensitive fields always count; reads only if the response includes these fields."""
    if not kind.sensitive:
        return frozenset()
    return WRITE_VERBS if set(kind.sensitive) <= set(kind.write_only) else WRITE_VERBS | READ_VERBS
