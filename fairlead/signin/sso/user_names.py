"""Names of users that are created at their first sign-on, and names that look alike.

The name of an object has only lower-case ASCII letters, digits, dashes and dots. A name at a provider may have any
character, so different ones may become the same. Whenever something was lost, or the name is in use, a hash of the
identity is appended. So a name never leads to an existing user: only issuer and subject do.
"""

import hashlib
import re
import unicodedata

from fairlead.signin.sso.identity import Identity

MAX_BASE_LENGTH = 40
HASH_LENGTHS = (8, 16, 40)
"""Hexadecimal digits of the hash that is appended: the first is enough unless there is a collision."""

_NOT_ALLOWED = re.compile(r"[^a-z0-9.-]+")

_CONFUSABLE = str.maketrans(
    {
        # Cyrillic and Greek letters that look like Latin ones in common fonts
        **dict(zip("аасеорхуіјѕԁһӏԛԝьв", "aaceopxyijsdhlqwbb", strict=True)),
        **dict(zip("αβεηικνορτυχγ", "abeniknoptuxy", strict=True)),
        # Latin letters and symbols, and digits in place of letters
        **dict(zip("\u0131\u0269\u01c0|\u217c\u0261\u0251", "iiiiiga", strict=True)),
        **dict(zip("013457", "oieast", strict=True)),
        "l": "i",
    }
)


def base_name(identity: Identity) -> tuple[str, bool]:
    """A valid object name for an identity, and whether it is exactly the user name at the provider."""
    preferred = identity.username or identity.email or ""
    local = preferred.partition("@")[0] if "@" in preferred else preferred
    slug = re.sub(r"[.-]*\.[.-]*", ".", _NOT_ALLOWED.sub("-", local.lower())).strip("-.")[:MAX_BASE_LENGTH].strip("-.")
    return (slug or "user", bool(slug) and slug == local)


def candidate_names(identity: Identity, *, always_suffix: bool = False) -> list[str]:
    """The names to try for a new user, in order. With `always_suffix`, all have a hash."""
    base, is_exact = base_name(identity)
    digest = hashlib.sha256(f"{identity.issuer}\0{identity.subject}".encode()).hexdigest()
    hashed = [f"{base}-{digest[:length]}" for length in HASH_LENGTHS]
    return [base, *hashed] if is_exact and not always_suffix else hashed


def skeleton(name: str) -> str:
    """What a name looks like: names with the same skeleton are easily mistaken for each other."""
    decomposed = unicodedata.normalize("NFKD", name).casefold()
    visible = (each for each in decomposed if unicodedata.category(each) not in ("Mn", "Me", "Cf", "Cc"))
    return unicodedata.normalize("NFKD", "".join(visible)).translate(_CONFUSABLE)
