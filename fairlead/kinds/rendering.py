"""Values put into the texts of a template: `{{ parameters.image.tag }}` becomes the value of that parameter.

Nothing is executed: there are no conditions, loops or functions, and what a value contains is not looked at again.
`{{ parameters.name | quote }}` puts the value in as a quoted text, which is one value in YAML and JSON whatever it
contains. Other braces, such as those of charts, stay as they are.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from fairlead.core.objects import Object

RENDERED_LIMIT = 1024 * 1024
"""Characters that all texts of a rendered template may have together."""

_placeholder = re.compile(
    r"\{\{[ \t]{0,20}parameters\.([A-Za-z0-9_.-]{1,253})[ \t]{0,20}(\|[ \t]{0,20}quote[ \t]{0,20})?\}\}", re.ASCII
)


PASSWORD = "password"


class RenderingError(Exception):
    """A template that cannot be rendered; the message says why."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RENDERED_LIMIT

    def spend(self, text: str) -> str:
        self.left -= len(text)
        if self.left < 0:
            raise RenderingError(f"the rendered template would have more than {RENDERED_LIMIT} characters")
        return text


def rendered(template: Object, values: Mapping[str, str]) -> Object:
    """A copy of the template with the values in it. Raises RenderingError."""
    result: Object = _rendered(template, values, _Budget())
    return result


def _rendered(value: Any, values: Mapping[str, str], budget: _Budget) -> Any:
    if isinstance(value, dict):
        return {name: _rendered(each, values, budget) for name, each in value.items()}
    if isinstance(value, list):
        return [_rendered(each, values, budget) for each in value]
    return _filled(value, values, budget) if isinstance(value, str) else value


def _filled(text: str, values: Mapping[str, str], budget: _Budget) -> str:
    """Piece by piece, so that a text which grows too much is given up before it is there."""
    pieces: list[str] = []
    end = 0
    for found in _placeholder.finditer(text):
        variable = found[1]
        if variable not in values:
            raise RenderingError(f"it uses parameters.{variable}, which it does not define; have the template mended")
        value = json.dumps(values[variable], ensure_ascii=False) if found[2] else values[variable]
        pieces += (budget.spend(text[end : found.start()]), budget.spend(value))
        end = found.end()
    pieces.append(budget.spend(text[end:]))
    return "".join(pieces)


def steered_credential(template: Any, made: Any, free: Collection[str], at: str = "") -> str:
    """The field by which parameters would say where a password of the template's own is sent to; empty if none does.

    Whoever fills in the parameters has never seen that password. One that is a parameter itself is theirs, and may go
    anywhere. `free` are the fields beside a password that do not matter.
    """
    if isinstance(template, list):
        pairs = enumerate(zip(template, made, strict=True))
        found = (steered_credential(*each, free, f"{at}[{index}]") for index, each in pairs)
        return next(filter(None, found), "")
    if not isinstance(template, dict):
        return ""
    own = template.get(PASSWORD)
    if isinstance(own, str) and own and not _placeholder.fullmatch(own):
        for name, value in template.items():
            if name not in free and value != made[name]:
                return f"{at}.{name}".lstrip(".")
    found = (steered_credential(value, made[name], free, f"{at}.{name}") for name, value in template.items())
    return next(filter(None, found), "")
