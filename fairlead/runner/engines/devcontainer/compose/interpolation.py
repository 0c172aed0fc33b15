"""Variables in Compose files: `$NAME`, `${NAME:-default}` and the other forms. Pure.

They come from `.env` files of the repository alone, never from the machine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.runner.engines.contract import invalid_configuration

MAX_DEPTH = 8
"""Of variables in the default values of others."""
MAX_CHARACTERS = 1 << 20
"""Of all texts of a workspace together: a variable with a long value may be used very often."""
_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?P<operator>:?[-?+]|\}))", re.A
)
_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*=[ \t]*(?P<value>.*)", re.A)
_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<value>.*)(?P=quote)(?:[ \t]+#.*)?[ \t]*")

_COMMENT = re.compile(r"(?<=\s)#")
"""What is before it is stripped afterwards: a repeat of spaces would be tried from each of them."""


@dataclass(slots=True)
class Variables:
    values: Mapping[str, str]
    missing: set[str] = field(default_factory=set)
    """Names that were used, and have neither a value nor a default."""
    _characters: int = 0

    def replace_in(self, value: Any) -> Any:
        """The value with all variables in its texts replaced, but not in keys. Raises EngineError."""
        if isinstance(value, str):
            return self._replace(value)
        if isinstance(value, list):
            return [self.replace_in(each) for each in value]
        if isinstance(value, dict):
            return {key: self.replace_in(each) for key, each in value.items()}
        return value

    def _replace(self, text: str) -> str:
        replaced = self._expand(text, 0)
        self._characters += len(replaced)
        if self._characters > MAX_CHARACTERS:
            raise invalid_configuration(f"the Compose files have more than {MAX_CHARACTERS >> 20} MiB of text")
        return replaced

    def _expand(self, text: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise invalid_configuration(f"a variable of the Compose files is nested deeper than {MAX_DEPTH} levels")
        parts: list[str] = []
        at = 0
        length = 0
        while (found := _VARIABLE.search(text, at)) is not None:
            parts.append(text[at : found.start()])
            at = found.end()
            if found["dollar"]:
                parts.append("$")
            elif found["bare"] or found["operator"] == "}":
                parts.append(self._find(found["bare"] or found["name"]))
            else:
                end = _find_end(text, at)
                parts.append(self._choose(found["name"], found["operator"], text[at:end], depth))
                at = end + 1
            length += len(parts[-1]) + len(parts[-2])
            if length > MAX_CHARACTERS:
                raise invalid_configuration(f"a text in the Compose files is longer than {MAX_CHARACTERS >> 20} MiB")
        return "".join([*parts, text[at:]])

    def _find(self, name: str) -> str:
        if name not in self.values:
            self.missing.add(name)
        return self.values.get(name, "")

    def _choose(self, name: str, operator: str, word: str, depth: int) -> str:
        has_value = bool(self.values.get(name)) if operator.startswith(":") else name in self.values
        if operator.endswith("+"):
            return self._expand(word, depth + 1) if has_value else ""
        if has_value:
            return self.values[name]
        if operator.endswith("?"):
            raise invalid_configuration(
                f"the Compose files need the variable {name[:100]}: {word[:200] or 'it has no value'}; set it in the "
                "file .env beside them"
            )
        return self._expand(word, depth + 1)


def _find_end(text: str, start: int) -> int:
    """Of the braces that were opened before `start`."""
    depth = 1
    for at in range(start, len(text)):
        if text[at] == "{" and text[at - 1] == "$":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
    raise invalid_configuration(f"a variable in the Compose files has no end: {text[:100]!r}")


def parse_variables(text: str) -> dict[str, str]:
    """The assignments in a file of variables, such as `.env`. Other lines have no meaning."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        found = _ASSIGNMENT.fullmatch(line.strip())
        if found is None:
            continue
        quoted = _QUOTED.fullmatch(found["value"])
        if quoted is None:
            values[found["name"]] = _COMMENT.split(found["value"], maxsplit=1)[0].strip()
        else:
            is_plain = quoted["quote"] == "'"
            values[found["name"]] = quoted["value"] if is_plain else quoted["value"].replace(r"\n", "\n")
    return values
