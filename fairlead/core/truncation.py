"""Names that are too long for where they go: cut off, with a hash of the whole."""

import hashlib

MAX_LABEL_LENGTH = 63
_HASH_LENGTH = 8


def truncate_with_hash(text: str, limit: int = MAX_LABEL_LENGTH) -> str:
    """Truncates a text that is too long and appends a hash of the whole, so that results stay unique."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{digest}"
