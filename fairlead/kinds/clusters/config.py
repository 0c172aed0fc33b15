"""Config: the settings that administrators change while the server runs. There is one, and it is always there.

`spec.raw` holds them as YAML text; the status shows what the server has understood of it and goes by. What it leaves
out is as the server was started with. `app/dynamic_config.py` reads it on each use, so a change holds from the next request.
"""

import difflib
import re
from collections.abc import Iterable, Iterator

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, dig, name_of
from fairlead.kinds.fields import CATEGORY
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, boolean, enum, integer, mapping, obj, string
from fairlead.registry.validate import Validator

CONFIG_NAME = "service-manager-config"
AUDIT_LEVELS = ("Metadata", "Request", "RequestResponse")
MAX_SECONDS = 2**31 - 1
MAX_HEADERS = 32
MAX_HEADER_LENGTH = 4096

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_HEADER_VALUE = re.compile(r"[ -~]*", re.ASCII)
RESERVED_HEADERS = frozenset(
    {
        *("audit-id", "cache-control", "connection", "content-encoding", "content-length", "content-type", "date"),
        *("keep-alive", "retry-after", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "warning"),
        *("vary", "www-authenticate"),
    }
)
"""Headers by which an answer is read; another value would make it unreadable, or sign somebody in."""


def _seconds(description: str, minimum: int = 0) -> Schema:
    return {**integer(description, minimum=minimum, bits=32), "maximum": MAX_SECONDS}


VALUES = {
    "auth": obj(
        "Signing in, and the credentials that people make.",
        accessKeyMaxTTLSeconds=_seconds("Most seconds that people may give an access key to live. 0 means no limit."),
        loginAccessKeyTTLSeconds=_seconds("Seconds that a login lasts. 0 means no end."),
        directTokenTTLSeconds=_seconds("Seconds that a direct token lives when nobody says how long.", 1),
        directTokenMaxTTLSeconds=_seconds("Most seconds that a direct token may live.", 1),
        password=obj("Signing in with a password.", disabled=boolean("Nobody can. Defaults to false.")),
        customHttpHeaders=mapping(
            string(longest=2 * MAX_HEADER_LENGTH),
            "Headers that every answer carries, such as Strict-Transport-Security.",
        ),
    ),
    "audit": obj(
        "The audit log.",
        level=enum("Least that is recorded of the requests that the policy records at all.", *AUDIT_LEVELS),
    ),
}
_VALIDATOR = Validator(obj(required=(), **VALUES))


def read(raw: str) -> tuple[Object, list[Problem]]:
    """What a text says, and what is wrong with it. The problems name the place within the text."""
    try:
        value, twice = yaml.decode(raw.encode())
    except (Malformed, UnicodeEncodeError) as error:
        return {}, [_problem(str(error))]
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [_problem("must hold settings, as in `auth: {accessKeyMaxTTLSeconds: 86400}`")]
    findings = _VALIDATOR.examine(value)
    problems = [_problem(f"{path} is set twice; keep one of them") for path in twice]
    problems += [_problem(_unknown(path)) for path in findings.unknown]
    problems += [_problem(f"{each.field}: {each.message}") for each in findings.problems]
    if not findings.problems:
        problems += [_problem(why) for why in _contradictions(value)]
    return value, problems


def _contradictions(value: Object) -> Iterator[str]:
    usual, most = (dig(value, f"auth.directToken{word}Seconds") for word in ("TTL", "MaxTTL"))
    if usual is not None and most is not None and usual > most:
        yield f"auth.directTokenTTLSeconds: {usual} is more than auth.directTokenMaxTTLSeconds, {most}; lower it"
    headers = dig(value, "auth.customHttpHeaders") or {}
    if len(headers) > MAX_HEADERS:
        yield f"auth.customHttpHeaders: {len(headers)} headers are too many; {MAX_HEADERS} is the limit"
    for name, text in headers.items():
        where = f"auth.customHttpHeaders[{name}]"
        if not _HEADER_NAME.fullmatch(name):
            yield f"{where}: is no name of a header; use letters, digits and dashes"
        elif name.lower() in RESERVED_HEADERS:
            yield f"{where}: the server sets this header itself; remove it"
        if len(text) > MAX_HEADER_LENGTH or not _HEADER_VALUE.fullmatch(text):
            yield f"{where}: must be one line of printable ASCII, at most {MAX_HEADER_LENGTH} characters"


def _unknown(path: str) -> str:
    (nearest,) = difflib.get_close_matches(path, list(_paths(VALUES)), n=1, cutoff=0.0)
    return f"there is no setting {path}; did you mean {nearest}? Otherwise remove it"


def _paths(fields: dict[str, Schema], above: str = "") -> Iterator[str]:
    """Every setting there is, by its dotted path."""
    for name, schema in fields.items():
        inner = schema.get("properties")
        yield from _paths(inner, f"{above}{name}.") if inner else (f"{above}{name}",)


def _problem(why: str) -> Problem:
    return Problem("spec.raw", "FieldValueInvalid", f"Invalid value: {why}")


def _raw(change: Change) -> str:
    raw = change.spec.get("raw")
    return raw if isinstance(raw, str) else ""


def show(change: Change) -> None:
    """The status is what the text says, whatever was sent for it."""
    value, problems = read(_raw(change))
    if change.new is not None and not problems:
        change.new["status"] = value


def check(change: Change) -> Iterable[Problem]:
    if name_of(change.obj) != CONFIG_NAME:
        yield Problem.invalid("metadata.name", name_of(change.obj), f"there is one Config only, {CONFIG_NAME}")
    yield from read(_raw(change))[1]


def _password_login(config: Object) -> str:
    return "off" if dig(config, "status.auth.password.disabled") else "on"


CONFIG = Kind(
    name="Config",
    plural="configs",
    namespaced=False,
    fields={
        "spec": obj(
            "The settings.",
            raw=string(
                "The settings as YAML text. What is left out is as the server was started with.",
                longest=limits.SETTINGS,
            ),
        ),
        "status": obj(
            "What the server goes by. Follows from the spec; what is sent for it is passed over.", required=(), **VALUES
        ),
    },
    description="The settings of the server that can be changed while it runs. There is one, service-manager-config.",
    categories=(CATEGORY,),
    verbs=("get", "list", "patch", "update", "watch"),
    columns=(
        Column("Key TTL", "status.auth.accessKeyMaxTTLSeconds", "integer", "Most seconds that access keys may live."),
        Column("Login TTL", "status.auth.loginAccessKeyTTLSeconds", "integer", "Seconds that a login lasts."),
        Column("Password Login", _password_login, description="Whether the settings leave it on."),
    ),
    secret=(
        "spec.raw",
    ),  # whoever writes a setting that there is not, or one of another product, may write a credential
    prepare=show,
    check=check,
)
