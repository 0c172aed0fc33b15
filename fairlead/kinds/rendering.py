"""Values put into the texts of a template: `{{ parameters.image.tag }}` becomes the value of that parameter.

Nothing is executed: there are no conditions, loops or functions, and what a value contains is not looked at again.
`{{ parameters.name | quote }}` puts the value in as a quoted text, which is one value in YAML and JSON whatever it
contains. Other braces, such as those of charts, stay as they are.

Some texts of a template are YAML that is read later. Whoever gives a value is not the one who wrote the template, so
there a value stays what it takes the place of: one value, or a part of a text. It cannot add fields or objects.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fairlead.core import yaml
from fairlead.core.addresses import names_a_place
from fairlead.core.objects import Object, dig

RENDERED_LIMIT = 1024 * 1024
"""Characters that all texts of a rendered template may have together."""

_placeholder = re.compile(
    r"\{\{[ \t]{0,20}parameters\.([A-Za-z0-9_.-]{1,253})[ \t]{0,20}(\|[ \t]{0,20}quote[ \t]{0,20})?\}\}", re.ASCII
)


_document = re.compile(r"^---(?=\s|$)", re.MULTILINE)
YAML_TEXTS = frozenset({"objects", "values", "parameters"})
"""Fields of templates whose text is YAML, wherever they stand."""

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


def rendered(template: Object, values: Mapping[str, str], *, raw: bool = False) -> Object:
    """A copy of the template with the values in it. With `raw`, values are put into YAML as they are: for whoever gives
    them and has written the template, too. Raises RenderingError."""
    yaml_texts = frozenset() if raw else YAML_TEXTS
    result: Object = _rendered(template, values, _Budget(), yaml_texts)
    return result


def _rendered(value: Any, values: Mapping[str, str], budget: _Budget, yaml_texts: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _filled_yaml(name, each, values, budget)
            if name in yaml_texts and isinstance(each, str)
            else _rendered(each, values, budget, yaml_texts)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_rendered(each, values, budget, yaml_texts) for each in value]
    return _filled(value, values, budget) if isinstance(value, str) else value


def _filled_yaml(name: str, text: str, values: Mapping[str, str], budget: _Budget) -> str:
    """The text with a word in place of each placeholder is read first, and values take the places of the words then."""
    if not _placeholder.search(text):
        return budget.spend(text)
    _filled(text, values, _Budget())  # says which parameter is missing, and that it all gets too long
    word = "parameter"
    while word in text:
        word += "x"
    variables: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        variables.append(found[1])
        return f'"{word}{len(variables) - 1}q"' if found[2] else f"{word}{len(variables) - 1}p"

    marked = _placeholder.sub(stand_in, text)
    words = re.compile(rf'"{word}(?P<quoted>[0-9]+)q"|{word}(?P<number>[0-9]+)(?P<sort>[pq])')

    def fill(scalar: str) -> str:
        return words.sub(lambda found: budget.spend(_value_of(found, scalar, variables, values)), scalar)

    documents = [_read_filled(name, each, fill) for each in _document.split(marked)]
    kept = [yaml.encode(each).decode() for each in documents if each is not None]
    return budget.spend("---\n".join(kept))


def _value_of(found: re.Match[str], scalar: str, variables: list[str], values: Mapping[str, str]) -> str:
    """Inside of a longer text, `quote` means what it says; a scalar of its own needs no quotes any more."""
    value = values[variables[int(found["quoted"] or found["number"])]]
    if found["quoted"]:
        return json.dumps(value, ensure_ascii=False)
    is_inside = found["sort"] == "q" and found[0] != scalar
    return json.dumps(value, ensure_ascii=False)[1:-1] if is_inside else value


def _read_filled(name: str, text: str, fill: Callable[[str], str]) -> Any:
    try:
        value, duplicates = yaml.decode(text.encode(), fill)
    except yaml.Malformed as error:
        why = f"its {name} is no YAML with a single value in place of each parameter: {error}"
        raise RenderingError(f"{why}; have the template mended") from None
    if duplicates:
        raise RenderingError(f"a value makes {duplicates[0]} in its {name} occur twice; give another value")
    return value


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


def led_elsewhere(
    template: Any, before: Any, after: Any, kept: Collection[str], free: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The parameters of `kept` that are passwords in the template, each with a field beside it that says where it is
    sent to and that other values have changed. `before` and `after` are the template as rendered with each."""
    if isinstance(template, list):
        for each in zip(template, before, after, strict=True):
            yield from led_elsewhere(*each, kept, free)
    elif isinstance(template, dict):
        found = _placeholder.fullmatch(str(template.get(PASSWORD) or ""))
        for name, value in template.items():
            was, now = before[name], after[name]
            is_place = name not in free or names_a_place(name, was) or names_a_place(name, now)
            if found is not None and found[1] in kept and name != PASSWORD and is_place and was != now:
                yield found[1], name
            yield from led_elsewhere(value, was, now, kept, free)


def _refers_to_secret(template: Object, made: Object) -> bool:
    """Whether the template itself says which secret the password is in: that is not of whoever sets parameters."""
    reference = template.get(f"{PASSWORD}Ref")
    return bool(dig(reference, "projectSecretRef.name")) and reference == made[f"{PASSWORD}Ref"]


def steered_credential(template: Any, made: Any, free: Collection[str], at: str = "") -> str:
    """The field by which parameters would say where a password of the template's own is sent to; empty if none does.

    Whoever fills in the parameters has never seen that password. One that is a parameter itself is theirs, and may go
    anywhere. `free` are the fields beside a password that do not matter, unless they name a place.
    """
    if isinstance(template, list):
        pairs = enumerate(zip(template, made, strict=True))
        found = (steered_credential(*each, free, f"{at}[{index}]") for index, each in pairs)
        return next(filter(None, found), "")
    if not isinstance(template, dict):
        return ""
    own = template.get(PASSWORD)
    has_own = isinstance(own, str) and bool(own) and not _placeholder.fullmatch(own)
    if has_own or _refers_to_secret(template, made):
        for name, value in template.items():
            is_place = name not in free or names_a_place(name, value) or names_a_place(name, made[name])
            if is_place and value != made[name]:
                return f"{at}.{name}".lstrip(".")
    found = (steered_credential(value, made[name], free, f"{at}.{name}") for name, value in template.items())
    return next(filter(None, found), "")
