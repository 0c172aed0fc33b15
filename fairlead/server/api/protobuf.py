"""Decodes Kubernetes protobuf bodies, for the kinds that kubectl and Helm send as protobuf.

Since 1.32, `kubectl create` and `kubectl auth` send built-in kinds as protobuf, without a fallback to JSON. So does
Helm 4, which also deletes with DeleteOptions in protobuf. The tables below have the field numbers of the Kubernetes
schemas; unknown fields are skipped, as usual with protobuf. Responses are never in protobuf: all clients accept JSON.
"""

from collections.abc import Mapping

from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object
from fairlead.core.protobuf_wire import Field, Message, base64_text, flag, message, moment, number, raw, text, texts

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def decode(body: bytes) -> Object:
    """Decodes an object. Raises Malformed if the body is invalid, or of an unsupported kind."""
    if not body.startswith(_MAGIC):
        raise Malformed("it does not start with the magic number of Kubernetes protobuf")
    envelope = message(_ENVELOPE)(body[len(_MAGIC) :])
    types = envelope.get("typeMeta") or {}
    kind = types.get("kind", "")
    fields = _KINDS.get(kind)
    if fields is None:
        raise Malformed(f"protobuf is not supported for {kind or 'a body without a kind'}; send JSON or YAML")
    return {**types, **message(fields)(envelope.get("raw", b""))}


_ENVELOPE: Message = {
    1: Field("typeMeta", message({1: Field("apiVersion", text), 2: Field("kind", text)})),
    2: Field("raw", raw),
}

_OWNER: Message = {
    1: Field("kind", text),
    3: Field("name", text),
    4: Field("uid", text),
    5: Field("apiVersion", text),
    6: Field("controller", flag),
    7: Field("blockOwnerDeletion", flag),
}

_METADATA = Field(
    "metadata",
    message(
        {
            1: Field("name", text),
            2: Field("generateName", text),
            3: Field("namespace", text),
            5: Field("uid", text),
            6: Field("resourceVersion", text),
            8: Field("creationTimestamp", moment),
            11: Field("labels", text, keyed=True),
            12: Field("annotations", text, keyed=True),
            13: Field("ownerReferences", message(_OWNER), many=True),
            14: Field("finalizers", text, many=True),
        }
    ),
)

_REQUIREMENT: Message = {1: Field("key", text), 2: Field("operator", text), 3: Field("values", text, many=True)}

_LABEL_SELECTOR: Message = {
    1: Field("matchLabels", text, keyed=True),
    2: Field("matchExpressions", message(_REQUIREMENT), many=True),
}

_SELECTOR: Message = {
    1: Field("rawSelector", text),
    2: Field("requirements", message(_REQUIREMENT), many=True),
}

_RESOURCE_ATTRIBUTES: Message = {
    1: Field("namespace", text),
    2: Field("verb", text),
    3: Field("group", text),
    4: Field("version", text),
    5: Field("resource", text),
    6: Field("subresource", text),
    7: Field("name", text),
    8: Field("fieldSelector", message(_SELECTOR)),
    9: Field("labelSelector", message(_SELECTOR)),
}

_ATTRIBUTES: Message = {
    1: Field("resourceAttributes", message(_RESOURCE_ATTRIBUTES), telling=True),
    2: Field("nonResourceAttributes", message({1: Field("path", text), 2: Field("verb", text)}), telling=True),
}

_SUBJECT_AND_ATTRIBUTES: Message = {
    **_ATTRIBUTES,
    3: Field("user", text),
    4: Field("groups", text, many=True),
    5: Field("extra", texts, keyed=True),
    6: Field("uid", text),
}

_RULE: Message = {
    1: Field("verbs", text, many=True),
    2: Field("apiGroups", text, many=True),
    3: Field("resources", text, many=True),
    4: Field("resourceNames", text, many=True),
    5: Field("nonResourceURLs", text, many=True),
}

_RULES = Field("rules", message(_RULE), many=True)
_AGGREGATION = message({1: Field("clusterRoleSelectors", message(_LABEL_SELECTOR), many=True)})

_SUBJECT: Message = {
    1: Field("kind", text),
    2: Field("apiGroup", text),
    3: Field("name", text),
    4: Field("namespace", text),
}

_BINDING: Message = {
    1: _METADATA,
    2: Field("subjects", message(_SUBJECT), many=True),
    3: Field("roleRef", message({1: Field("apiGroup", text), 2: Field("kind", text), 3: Field("name", text)})),
}


def _with_spec(fields: Message) -> Message:
    """A kind with metadata and spec. A status would be ignored anyway."""
    return {1: _METADATA, 2: Field("spec", message(fields))}


_BOUND_OBJECT: Message = {
    1: Field("kind", text),
    2: Field("apiVersion", text),
    3: Field("name", text),
    4: Field("uid", text),
}

_KINDS: Mapping[str, Message] = {
    "ConfigMap": {
        1: _METADATA,
        2: Field("data", text, keyed=True),
        3: Field("binaryData", base64_text, keyed=True),
        4: Field("immutable", flag),
    },
    "Secret": {
        1: _METADATA,
        2: Field("data", base64_text, keyed=True),
        3: Field("type", text),
        4: Field("stringData", text, keyed=True),
        5: Field("immutable", flag),
    },
    "ServiceAccount": {
        1: _METADATA,
        2: Field("secrets", message({3: Field("name", text)}), many=True),
        3: Field("imagePullSecrets", message({1: Field("name", text)}), many=True),
        4: Field("automountServiceAccountToken", flag),
    },
    "TokenRequest": _with_spec(
        {
            1: Field("audiences", text, many=True),
            3: Field("boundObjectRef", message(_BOUND_OBJECT)),
            4: Field("expirationSeconds", number),
        }
    ),
    "Namespace": _with_spec({1: Field("finalizers", text, many=True)}),
    "Role": {1: _METADATA, 2: _RULES},
    "ClusterRole": {1: _METADATA, 2: _RULES, 3: Field("aggregationRule", _AGGREGATION, telling=True)},
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectAccessReview": _with_spec(_ATTRIBUTES),
    "SubjectAccessReview": _with_spec(_SUBJECT_AND_ATTRIBUTES),
    "LocalSubjectAccessReview": _with_spec(_SUBJECT_AND_ATTRIBUTES),
    "SelfSubjectRulesReview": _with_spec({1: Field("namespace", text)}),
    "SelfSubjectReview": {1: _METADATA},
    "DeleteOptions": {
        1: Field("gracePeriodSeconds", number),
        2: Field("preconditions", message({1: Field("uid", text), 2: Field("resourceVersion", text)})),
        3: Field("orphanDependents", flag),
        4: Field("propagationPolicy", text),
        5: Field("dryRun", text, many=True),
    },
    "TokenReview": _with_spec({1: Field("token", text), 2: Field("audiences", text, many=True)}),
}
