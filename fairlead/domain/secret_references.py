"""References to secrets in the definition of a workspace, and who wrote them. Pure.

A secret is resolved with the permissions of the workspace's owner, and others may change a workspace: they must not get
secrets of its owner that they may not use themselves. So an annotation of the workspace records that its owner accepted
it, and for each reference the user who wrote it. One of the template does the same for the references in it.
`admission/secret_references.py` writes both, and `authz/secret_access.py` decides with them.

Each reference is recorded as a digest: there may be hundreds, and annotations are limited.

Where parameters are part of a reference in a template, its author still determines the secret, by default values,
options, and the text around them. Only a secret that the parameters of the workspace name is chosen by their writer.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import orjson

from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object, format_scalar, get_path, metadata
from fairlead.domain.parameters import TEXT_TYPES, parse_values
from fairlead.domain.template_resolution import TemplateDefinition, find_parameters, has_placeholder, whole_parameter

CONSENT_ANNOTATION = "service.sh/secret-consent"
ADMINISTRATORS = "system:masters"
"""As a writer: an administrator, who may read every secret anyway."""
UNKNOWN = ""
"""As a writer: a template of an earlier version does not say who wrote it."""
VALUE_MAPS = ("provider.options", "provider.env", "workspaceEnv", "initEnv")
"""Maps of a definition whose values may come from secrets."""
PROJECT_SECRETS, SHARED_SECRETS = "projectsecrets", "sharedsecrets"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A value of a definition that comes from a secret. `field` is its path. A project secret has no namespace: it is
    one of the project that the workspace is in."""

    field: str
    plural: str
    namespace: str
    name: str
    key: str

    @property
    def digest(self) -> str:
        parts = [self.field, self.plural, self.namespace, self.name, self.key]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:24]

    @property
    def is_literal(self) -> bool:
        """Whether no parameter determines which secret it is."""
        return not any(has_placeholder(each) for each in (self.namespace, self.name, self.key))


def find_references(definition: Object) -> Iterator[SecretReference]:
    for path in VALUE_MAPS:
        values = get_path(definition, path)
        for variable, value in values.items() if isinstance(values, dict) else ():
            for ref_field, plural in (("projectSecretRef", PROJECT_SECRETS), ("sharedSecretRef", SHARED_SECRETS)):
                reference = get_path(value, f"valueFrom.{ref_field}")
                if isinstance(reference, dict) and reference:
                    namespace = str(reference.get("namespace") or "") if plural == SHARED_SECRETS else ""
                    name = str(reference.get("name") or "")
                    key = str(reference.get("key") or "")
                    yield SecretReference(f"{path}.{variable}", plural, namespace, name, key)


def template_definitions(template: Object | None) -> list[Object]:
    """All definitions of a template: the unversioned one, and those of its versions."""
    return [part.get("template") or {} for part in _parts(template)]


def _parts(template: Object | None) -> list[Object]:
    spec = get_path(template, "spec") or {}
    return [spec, *(spec.get("versions") or ())]


def find_authored(template: Object | None) -> dict[str, SecretReference]:
    """The references to shared secrets in a template, by the digests under which their authors are recorded."""
    return {
        authored_digest(each, part.get("parameters") or ()): each
        for part in _parts(template)
        for each in find_references(part.get("template") or {})
        if each.plural == SHARED_SECRETS
    }


def authored_digest(reference: SecretReference, parameters: Sequence[Object]) -> str:
    """The digest of a reference as a template has it: with the definitions of its parameters, since who changes their
    default values and options changes what it refers to."""
    if reference.is_literal:
        return reference.digest
    used = find_parameters(f"{reference.namespace} {reference.name} {reference.key}")
    definitions = [each for each in parameters if each.get("variable") in used]
    text = encode_sorted([reference.digest, definitions])
    return hashlib.sha256(text).hexdigest()[:24]


def find_author_choices(instance: Object, definition: TemplateDefinition) -> dict[tuple[str, str], str]:
    """The references with parameters that the author of the template nevertheless chooses: by field and plural, the
    digest under which the author is recorded. Project secrets are those of the project, and the author's to name."""
    given, _ = parse_values(get_path(instance, "spec.parameters") or "")
    typed = {name for name, value in given.items() if not isinstance(value, dict | list) and format_scalar(value)}
    parameters = definition.parameters or ()
    fixed = {each.get("variable") for each in parameters if each.get("options") or not _is_text(each)}
    return {
        (each.field, each.plural): authored_digest(each, parameters)
        for each in find_references(definition.template)
        if each.plural == SHARED_SECRETS and not each.is_literal and not _is_chosen(each, typed - fixed)
    }


def _is_text(parameter: Object) -> bool:
    return (parameter.get("type") or "") in TEXT_TYPES


def _is_chosen(reference: SecretReference, typed: set[str]) -> bool:
    """Whether those who set parameters name the secret: the namespace may be that of the template."""
    has_namespace = not has_placeholder(reference.namespace) or whole_parameter(reference.namespace) in typed
    return has_namespace and whole_parameter(reference.name) in typed


@dataclass(frozen=True, slots=True)
class SecretConsent:
    """What the annotation records: the owner that accepted the workspace, the writers of references by digest, and the
    fields of the spec that others than the owner wrote last. These may refer to a secret only later, when a template is
    created or changes."""

    owner: str = ""
    writers: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)


class _Stored(msgspec.Struct, omit_defaults=True):
    owner: str = ""
    writers: dict[str, list[str]] = {}
    inputs: dict[str, str] = {}


_decode = msgspec.json.Decoder(_Stored).decode


def read_consent(obj: Object | None) -> SecretConsent:
    """Empty if nothing is recorded, as in objects of earlier versions."""
    annotations = metadata(obj).get("annotations") if obj is not None else None
    text = annotations.get(CONSENT_ANNOTATION) if isinstance(annotations, dict) else None
    try:
        stored = _decode(text) if isinstance(text, str) else _Stored()
    except msgspec.MsgspecError:
        return SecretConsent()
    writers = {each: name for name, digests in stored.writers.items() for each in digests}
    return SecretConsent(stored.owner, writers, stored.inputs)


def write_consent(obj: Object, consent: SecretConsent) -> None:
    """Sets the annotation, or removes it. Validation of metadata rejects annotations that are not a map."""
    meta = metadata(obj)
    annotations = meta.get("annotations") or {}
    is_empty = not (consent.owner or consent.writers or consent.inputs)
    if not isinstance(annotations, dict) or (is_empty and CONSENT_ANNOTATION not in annotations):
        return
    by_writer: dict[str, list[str]] = {}
    for digest, name in sorted(consent.writers.items()):
        by_writer.setdefault(name, []).append(digest)
    others = {key: value for key, value in annotations.items() if key != CONSENT_ANNOTATION}
    if not is_empty:
        stored = _Stored(consent.owner, by_writer, dict(consent.inputs))
        others[CONSENT_ANNOTATION] = msgspec.json.encode(stored).decode()
    if others != annotations:
        meta["annotations"] = others
        if not others:
            del meta["annotations"]


def owner_principal(instance: Object | None) -> str:
    """The owner as the name of a user, or as the group of a team; empty if there is none."""
    user = get_path(instance, "spec.owner.user")
    team = get_path(instance, "spec.owner.team")
    if user and isinstance(user, str):
        return user
    return f"service:team:{team}" if team and isinstance(team, str) else ""
