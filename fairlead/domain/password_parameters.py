"""Keeps values of parameters of type `password` out of `spec.parameters` and out of responses.

The values are stored in `spec.parameterSecrets`, which is write-only; the text of `spec.parameters` has placeholders
instead. A client that sends the placeholder back keeps the value, as long as the template is the same. Templates are
rendered with the real values, so the rendered template and messages from clusters may contain them; `redact_instance`
removes them from responses. Pure. Admission and the instance controller hide values, the registry redacts.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from fairlead.core import yaml
from fairlead.core.objects import LAST_APPLIED, Object, get_path, metadata
from fairlead.domain.parameters import PARAMETER_SECRETS, RENDERED_SECRETS, parse_values

PLACEHOLDER = "<hidden>"
SECRETS_FIELD = PARAMETER_SECRETS
PASSWORD_TYPE = "password"

_REDACTION_MARK = "\0"
"""Marks redacted text until all values are redacted: a short password may be contained in the placeholder itself."""
_redaction_marks = re.compile(f"{_REDACTION_MARK}+")
_timestamp = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)", re.ASCII)
_FREE_TEXTS = ("message", "notes")
"""Fields of a status with text that may quote values."""
_FORCES_QUOTES = "\ufeff"
"""Makes the YAML encoder write a string with all escapes."""


def hidden_values(instance: Object | None) -> Mapping[str, str]:
    """The hidden values by variable."""
    return _string_values(get_path(instance or {}, f"spec.{SECRETS_FIELD}"))


def _string_values(value: Any) -> Mapping[str, str]:
    """The string values of a map. The schema rejects wrong types elsewhere; they must not break responses."""
    return {name: each for name, each in value.items() if isinstance(each, str)} if isinstance(value, dict) else {}


def fill_placeholders(values: Mapping[str, Any], secrets: Mapping[str, str]) -> Mapping[str, Any]:
    """The supplied values, with placeholders replaced by the hidden values."""
    if not secrets:
        return values
    return {name: secrets.get(name, value) if value == PLACEHOLDER else value for name, value in values.items()}


def hide_passwords(spec: Object, definitions: Iterable[Object], before: Mapping[str, str]) -> Object | None:
    """The spec with password values moved to `spec.parameterSecrets`; None if nothing changes.

    Hidden values without a placeholder in the text are dropped, because the parameter is no longer set. `before` are
    the stored hidden values.
    """
    known = dict(spec.get(SECRETS_FIELD) or {})
    secret = {each.get("variable") for each in definitions if each.get("type") == PASSWORD_TYPE}
    if not secret and not known:
        return None
    text = spec.get("parameters") or ""
    values, problems = parse_values(text)
    if problems:
        return None
    fresh = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in values.items()
        if name in secret and value not in (PLACEHOLDER, None, "") and not isinstance(value, dict | list)
    }
    unchanged = {name: value for name, value in known.items() if values.get(name) == PLACEHOLDER}
    # Sent in spec.parameterSecrets, without a placeholder in the text.
    added = {
        name: value
        for name, value in known.items()
        if name in secret and name not in values and before.get(name) != value
    }
    wanted = {**unchanged, **added, **fresh}
    if wanted == known and not fresh and not added:
        return None
    new = {name: value for name, value in spec.items() if name != SECRETS_FIELD}
    if fresh or added:
        new["parameters"] = _insert_placeholders(text, values, {**added, **fresh})
    return {**new, SECRETS_FIELD: wanted} if wanted else new


def _insert_placeholders(text: str, values: Mapping[str, Any], secret: Mapping[str, str]) -> str:
    """The text with placeholders. Formatting and comments are kept if the result is certain to be equivalent."""
    wanted = {**values, **dict.fromkeys(secret, PLACEHOLDER)}
    changed = _redact_text(text, sorted(secret.values(), key=len, reverse=True))
    found, problems = parse_values(changed)
    if not problems and dict(found) == wanted:
        return changed
    return yaml.encode(wanted).decode()


def dangling_placeholders(spec: Object) -> list[str]:
    """The variables whose placeholder has no hidden value."""
    values, _ = parse_values(spec.get("parameters") or "")
    known = spec.get(SECRETS_FIELD) or {}
    return [name for name, value in values.items() if value == PLACEHOLDER and name not in known]


def redact_instance(instance: Object) -> None:
    """Redacts hidden values in everything derived from them: the status, and the last-applied annotation of kubectl."""
    forms = _all_encodings(instance)
    status = instance.get("status")
    if forms and isinstance(status, dict):
        instance["status"] = {name: _redact_status_field(name, value, forms) for name, value in status.items()}
    redact_last_applied(instance)


def redact_conditions(instance: Object, conditions: Sequence[Object]) -> Sequence[Object]:
    """Conditions for storage, redacted: later the instance may have other passwords, which would not match any more."""
    forms = _all_encodings(instance)
    return [_redact_condition(each, forms) for each in conditions] if forms else conditions


def _redact_status_field(name: str, value: Any, encodings: Iterable[str]) -> Any:
    """A field of the status, redacted. Values such as the phase are constants of the server, which programs compare."""
    if name == RENDERED_SECRETS or (isinstance(value, str) and name not in _FREE_TEXTS):
        return value
    if name == "conditions" and isinstance(value, list):
        return [_redact_condition(each, encodings) for each in value]
    return _redact_value(value, encodings)


def _redact_condition(condition: Any, encodings: Iterable[str]) -> Any:
    if not isinstance(condition, dict) or not isinstance(condition.get("message"), str):
        return condition
    return {**condition, "message": _redact_text(condition["message"], encodings)}


def redact_last_applied(instance: Object) -> None:
    """Redacts the last-applied annotation. It is also stored redacted, because the hidden values may change later."""
    forms = _all_encodings(instance)
    annotations = metadata(instance).get("annotations")
    if forms and isinstance(annotations, dict) and isinstance(annotations.get(LAST_APPLIED), str):
        annotations[LAST_APPLIED] = _redact_text(annotations[LAST_APPLIED], forms)


def record_rendered_secrets(instance: Object, status: Object) -> Object:
    """The status with the hidden values that its rendered template contains: those of the spec may change later."""
    rest = {name: value for name, value in status.items() if name != RENDERED_SECRETS}
    secrets = hidden_values(instance)
    return {**rest, RENDERED_SECRETS: dict(secrets)} if secrets else rest


def _all_encodings(instance: Object) -> list[str]:
    rendered = _string_values(get_path(instance, f"status.{RENDERED_SECRETS}"))
    values = (value for value in (*hidden_values(instance).values(), *rendered.values()) if value)
    return sorted({form for value in values for form in _encodings(value)}, key=len, reverse=True)


def _encodings(value: str) -> Iterable[str]:
    """The value, and its JSON and YAML encodings, single and double: annotations contain text within text."""
    once = json.dumps(value, ensure_ascii=False)[1:-1]
    yield from (value, once, json.dumps(once, ensure_ascii=False)[1:-1], value.replace("'", "''"))
    ascii_only = json.dumps(value)[1:-1]
    yield from (ascii_only, json.dumps(ascii_only)[1:-1])
    escaped = yaml.encode(_FORCES_QUOTES + value).decode().rstrip("\n")[1:-1]
    escaped = escaped.removeprefix(r"\uFEFF")
    yield from (escaped, json.dumps(escaped, ensure_ascii=False)[1:-1], *_number_encodings(value))


def _number_encodings(value: str) -> Iterable[str]:
    """How a rendered template shows the value if it is a YAML number: `0x1F` is 31."""
    try:
        number, _ = yaml.decode(value.encode())
        if isinstance(number, int | float) and not isinstance(number, bool):
            yield yaml.encode(number).decode().strip()
            yield from yaml.decode(f"{value}: 0".encode())[0]
    except (yaml.Malformed, UnicodeEncodeError):
        return


def _redact_value(value: Any, encodings: Iterable[str]) -> Any:
    if isinstance(value, str):
        return value if _timestamp.fullmatch(value) else _redact_text(value, encodings)
    if isinstance(value, list):
        return [_redact_value(each, encodings) for each in value]
    return {name: _redact_value(each, encodings) for name, each in value.items()} if isinstance(value, dict) else value


def _redact_text(text: str, encodings: Iterable[str]) -> str:
    for form in encodings:
        if form in text:
            text = text.replace(form, _REDACTION_MARK)
    return _redaction_marks.sub(PLACEHOLDER, text) if _REDACTION_MARK in text else text
