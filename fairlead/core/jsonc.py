"""JSON with comments and trailing commas, as in devcontainer.json: for kinds with such texts, and for runners.

Each text is read once, whatever it contains: comments and strings without an end match up to the end of the text, so
that no other place in them is tried as a beginning. Everything between two comments is one match, because a call for
each string would take most of the time.
"""

import re
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.json import decode

_STRING = r'"(?:[^"\\]++|\\.?)*+"?'
_COMMENTS = re.compile(rf'((?:{_STRING}|[^"/]++)++)|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(\*/)?', re.DOTALL)
_TRAILING_COMMAS = re.compile(rf'((?:{_STRING}|[^",]++|,(?!\s*[}}\]]))++)|,', re.DOTALL)


def parse_jsonc(text: str) -> dict[str, Any]:
    """The object that the text contains. Raises Malformed."""
    without_comments = _COMMENTS.sub(_replace_comment, text)
    value = decode(_TRAILING_COMMAS.sub(lambda match: match[1] or "", without_comments).encode())
    if not isinstance(value, dict):
        raise Malformed("it is not an object")
    return value


def _replace_comment(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    if match[0].startswith("/*") and not match[2]:
        raise Malformed("a comment that begins with /* has no end")
    return " "
