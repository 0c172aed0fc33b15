"""What a log may have of an object. Called in the writer's thread, by `body_capture.py`.

For a kind that has credentials, the declared ones are taken out, and then everything that the kind's schema does not
know: a field that is new, misspelt or in the wrong place may hold one as well. For other kinds it is what is called
like a credential. managedFields never help a reader and are dropped.
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
"""How the names of fields end whose texts are not shown in any kind, without regard to case, `-` and `_`."""

DOCUMENTS = frozenset({"lastappliedobjects", "manifests", "objects", "parameters", "raw", "script", "values"})
"""Fields with a whole text of YAML or a script in it: nobody knows what is in it, and people put credentials there."""

_SHORT_WORDS = re.compile(r"[A-Za-z0-9 ._/-]{0,64}", re.ASCII)
"""An annotation that is a word or two, and no text with fields in it."""

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
    """An object of the kind, or a part of one as in a patch. May change what it is given."""
    if not isinstance(value, dict):
        return REDACTED if kind.secret else masked(value)
    if isinstance(value.get("metadata"), dict):
        value["metadata"].pop("managedFields", None)
    schema = {"type": "object", "properties": {**_TYPES, "metadata": _METADATA, **kind.fields}}
    shown: Object = known(redact(value, kind.secret), schema) if kind.secret else declared(masked(value), schema)
    _cleanse_annotations(shown, bool(kind.secret))
    return shown


def without_fields(value: Any, kind: Kind) -> Any:
    """An object of which only the metadata was asked for."""
    if not isinstance(value, dict):
        return REDACTED
    return cleansed({name: value[name] for name in ("apiVersion", "kind", "metadata") if name in value}, kind)


def known(value: Any, schema: Schema) -> Any:
    """The value as far as the schema knows it; a mark for everything else."""
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
        return REDACTED  # the caller's own structure: nobody knows what is in it
    unknown = others if isinstance(others, dict) else anything()
    return {
        name: REDACTED if is_opaque(name) and isinstance(each, str) else known(each, fields.get(name, unknown))
        for name, each in value.items()
    }


def masked(value: Any) -> Any:
    """The value without the texts that are called like a credential."""
    if isinstance(value, list):
        return [masked(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: REDACTED if is_opaque(name) and isinstance(each, str | int | float) else masked(each)
        for name, each in value.items()
    }


def declared(value: Any, schema: Schema) -> Any:
    """The value with a mark for each field that its schema does not know, for a kind without credentials.

    It has been refused, or the field was dropped: it is not a part of the object, and may belong to another kind.
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
    """What strategic merge patches say beside fields."""
    return name == "$patch" or name.startswith(("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"))


def is_opaque(name: str) -> bool:
    """Whether what stands under the name is not to be shown, whatever the kind."""
    plain = name.replace("-", "").replace("_", "").lower()
    return plain.endswith(SUSPICIOUS) or plain in DOCUMENTS


def cleansed_json_patch(operations: Any, kind: Kind) -> Any:
    """What a JSON patch does where. Of a kind with credentials no values, since they do not say what is in them."""
    if not isinstance(operations, list):
        return REDACTED
    return [_cleansed_operation(operation, kind) for operation in operations]


def _cleansed_operation(operation: Any, kind: Kind) -> Any:
    if not isinstance(operation, dict):
        return REDACTED
    shown: Object = {}
    for name in ("op", "from", "path"):
        if name in operation:
            shown[name] = operation[name] if isinstance(operation[name], str) else REDACTED
    if "value" in operation:
        path = str(operation.get("path", ""))
        opaque = bool(kind.secret) or "managedFields" in path or is_opaque(path.rpartition("/")[2])
        shown["value"] = REDACTED if opaque else masked(operation["value"])
    return shown


def _cleanse_annotations(shown: Object, strictly: bool) -> None:
    """Tools keep whole objects in annotations, credentials included; people do not. Where an object has credentials,
    only what is plainly a word stays."""
    metadata = shown.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return
    for name, value in annotations.items():
        text = str(value)
        whole = name == LAST_APPLIED or len(text) > LONGEST_ANNOTATION or text.lstrip().startswith(("{", "[", '"', "'"))
        if value is not None and (whole or (strictly and not _SHORT_WORDS.fullmatch(text))):
            annotations[name] = REDACTED


# DOC-MERGED server/audit/shown
# Texts that came with a request, as far as a log may show them.
#
# Paths, queries and names are the caller's to choose, and people do paste a key where a name should be. So what looks
# like a key is never shown, and of a query only the parameters that are known to hold none.


MARK = "REDACTED"
"""Stands for what was taken out. No brackets, as it must fit into a URI."""

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
"""Query parameters whose values are shown. The others may be anything, so only their names are."""

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_LONG_WORDS = re.compile(r"[A-Za-z0-9_-]{32,}")
_URL_SAFE = re.compile(r"[A-Za-z0-9/._~:@!$'()*+,;=-]*")
_TERM = re.compile(r"([^=!]+)(?:==|!=|=)[^=!]*")


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text without what looks like a key or a token, and not longer than anybody would read.

    Random texts mix cases; names of objects, hashes and uids do not. So nearly every text is done with at a glance.
    """
    if len(text) >= 32 and text != text.lower():
        text = _LONG_WORDS.sub(_judged, text)
    return text if len(text) <= longest else text[:longest] + _CUT


def _judged(match: re.Match[str]) -> str:
    word = match[0]
    return MARK if word != word.lower() and word != word.upper() else word


def request_uri(path: str, query: Mapping[str, list[str]], kinds: Sequence[Kind]) -> str:
    """The URI that was asked for, rebuilt from what was understood of it."""
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
    """Whether a field selector only names fields that are no secret. What cannot be selected by can still be asked."""
    fields = {*_fields(selector)}
    return bool(kinds) and all(not kind.secret or fields <= {*_METADATA_FIELDS, *kind.selectable} for kind in kinds)


def _fields(selector: str) -> Sequence[str]:
    """Term by term, each looked at from its beginning: strangers choose the text, and looking for terms anywhere in it
    would take time that grows with the square of its length."""
    terms = [_TERM.fullmatch(term) for term in selector.split(",")]
    fields = [term[1] for term in terms if term is not None]
    return fields if len(fields) == len(terms) else [selector]


def address(client: str) -> str:
    """The IP address of `address:port`."""
    return client.rpartition(":")[0].strip("[]")


# DOC-MERGED server/audit/credentials
# Which requests hand out, take in or change a credential. They are recorded whatever the policy says.
#
# The kinds' own declarations say most of it. Some paths are known by their names alone, because what they answer with is
# no field of an object.


WRITES = frozenset({"create", "update", "patch"})
READS = frozenset({"get", "list", "watch"})

LOGIN = "/auth/"
"""Everything below is about signing in."""

SUBRESOURCES = frozenset({"accesskey", "accesskeys", "kubeconfig", "profile", "resetaccesskey", "rotate", "token"})
RESOURCES = ("accesskeys", "tokens", "tokenkeyrotations")
"""How the names of resources end whose creation makes a credential, in case their kind does not say so itself."""

Asked = tuple[str, str, str, str]
"""Verb, group, resource and subresource."""


class Credentials:
    """The register of a catalog's requests about credentials."""

    def __init__(self, catalog: Catalog) -> None:
        self._known = frozenset(asked for kind in catalog.kinds for asked in _asked(kind))

    def concern(self, target: Target) -> bool:
        """Whether the request is about a credential. Rather once too often."""
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
    """Writing is always about the credentials of a kind that has some; reading is where an answer shows them."""
    if not kind.secret:
        return frozenset()
    return WRITES if set(kind.secret) <= set(kind.hidden) else WRITES | READS
