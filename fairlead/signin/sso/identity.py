"""Reads the claims of a provider. Nothing about their types is trusted: what is not as expected refuses the sign-on.

The ID token has been verified by then. Claims that it lacks may come from the userinfo endpoint; the email address and
whether it is verified always come from the same document.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.authn.sign_on_policy import Facts, SignOnReason
from fairlead.authn.sign_on_settings import Connector
from fairlead.registry import limits
from fairlead.signin.sso.reasons import SignOnRefused

Claims = Mapping[str, Any]

MAX_SUBJECT_LENGTH = 255
"""OpenID Connect Core 2: at most 255 ASCII characters."""
MAX_TEXT_LENGTH = 512
MAX_GROUPS = limits.GROUPS
MAX_GROUP_LENGTH = 512
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the provider says the user is. `claims` has those besides the groups that rules compare."""

    issuer: str
    subject: str
    username: str = ""
    display_name: str = ""
    email: str = ""
    is_email_verified: bool = False
    groups: tuple[str, ...] = ()
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def facts(self) -> Facts:
        return Facts(frozenset(self.groups), self.claims, self.email, self.is_email_verified)


def find_claim(claims: Claims, path: str) -> Any:
    """The value of a claim: the one of this exact name, else a nested one. `_MISSING` if there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def has_claim(claims: Claims, path: str) -> bool:
    return find_claim(claims, path) is not _MISSING


def missing_claims(connector: Connector, claims: Claims, compared: Iterable[str]) -> list[str]:
    """The claims that the ID token lacks, so that userinfo is needed."""
    names = connector.claims
    wanted = (names.username, names.name, names.email, names.groups, *compared)
    return [name for name in dict.fromkeys(wanted) if not has_claim(claims, name)]


def read_identity(connector: Connector, claims: Claims, userinfo: Claims | None, compared: Iterable[str]) -> Identity:
    """The identity in verified claims. Raises SignOnRefused. `compared` are the claims that rules compare."""
    documents = (claims,) if userinfo is None else (claims, userinfo)
    names = connector.claims
    email, is_verified = _read_email(documents, names.email)
    return Identity(
        issuer=connector.issuer,
        subject=_read_subject(claims),
        username=_read_text(documents, names.username),
        display_name=_read_text(documents, names.name),
        email=email,
        is_email_verified=is_verified,
        groups=_read_groups(documents, names.groups),
        claims={name: values for name in compared if (values := _read_values(documents, name))},
    )


def _read_subject(claims: Claims) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not subject.isprintable():
        raise SignOnRefused(SignOnReason.CLAIMS_INVALID, "sub")
    return subject


def _first(documents: tuple[Claims, ...], name: str) -> Any:
    found = (find_claim(document, name) for document in documents)
    return next((value for value in found if value is not _MISSING), _MISSING)


def _read_text(documents: tuple[Claims, ...], name: str) -> str:
    """A text for display. A value of another type, or one that is too long, is left out: no decision depends on it."""
    value = _first(documents, name)
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        return ""
    return clean_text(value)


def clean_text(value: str) -> str:
    """Without control characters, and without invisible ones that change the direction or the look of a text."""
    plain = " ".join(value.split())
    retained = (each for each in plain if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
    return "".join(retained).strip()


def _read_email(documents: tuple[Claims, ...], name: str) -> tuple[str, bool]:
    """The email address, and whether the same document says that it is verified: JSON true, nothing else."""
    for document in documents:
        value = find_claim(document, name)
        if value is _MISSING:
            continue
        if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH or clean_text(value) != value or " " in value:
            return "", False
        return value, document.get("email_verified") is True
    return "", False


def _read_groups(documents: tuple[Claims, ...], name: str) -> tuple[str, ...]:
    """The groups: a list of strings, or one string. Never split: a comma is a part of a name."""
    for document in documents:
        _check_overage(document, name)
    value = _first(documents, name)
    if value is _MISSING:
        return ()
    groups = [value] if isinstance(value, str) else value
    if not isinstance(groups, list):
        raise SignOnRefused(SignOnReason.GROUPS_INVALID, "the claim is neither a list nor a string")
    if len(groups) > MAX_GROUPS:
        raise SignOnRefused(SignOnReason.GROUPS_INVALID, f"there are more than {MAX_GROUPS} groups")
    for group in groups:
        if not isinstance(group, str) or not 0 < len(group) <= MAX_GROUP_LENGTH or not group.isprintable():
            raise SignOnRefused(SignOnReason.GROUPS_INVALID, "a group is not a text, or it is empty or too long")
    return tuple(dict.fromkeys(groups))


def _check_overage(document: Claims, name: str) -> None:
    """Providers leave groups out if there are too many, and say so. That is not the same as no groups."""
    elsewhere = document.get("_claim_names")
    if elsewhere is not None and (not isinstance(elsewhere, Mapping) or name.split(".", maxsplit=1)[0] in elsewhere):
        raise SignOnRefused(SignOnReason.GROUPS_OVERAGE)
    if document.get("hasgroups") is True and not has_claim(document, name):
        raise SignOnRefused(SignOnReason.GROUPS_OVERAGE)


def _read_values(documents: tuple[Claims, ...], name: str) -> tuple[str, ...]:
    """The texts in a claim. Values of other types match no rule."""
    value = _first(documents, name)
    values = value if isinstance(value, list) else [value]
    texts = (each for each in values[:MAX_GROUPS] if isinstance(each, str) and len(each) <= MAX_GROUP_LENGTH)
    return tuple(dict.fromkeys(texts))
