"""What both codecs say of a body that cannot be read, and how deep a body may be.

Raised by `core/json.py` and `core/yaml.py`; whoever reads a body turns it into an answer with status 400.
"""

from __future__ import annotations

# Kubernetes stops at 10,000 levels, as Go's stacks grow. Ours do not: code that walks an object by recursion, two or
# three frames a level, must stay within Python's limit of 1,000 frames. No object that people write comes near.
MAX_DEPTH = 200

# What a body of 3 MiB could hold is 1.5 million values, and everything that walks an object pays for each of them. A
# large object of a real cluster has some thousands; a YAML body has had a budget of about this many from the start.
MAX_VALUES = 100_000


class Malformed(ValueError):
    """A body that is not what its content type says, or too large a thing to build. The text says what and where."""


def too_deep() -> Malformed:
    return Malformed(f"nested deeper than {MAX_DEPTH} levels; flatten the object")
