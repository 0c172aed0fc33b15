"""What commands write, without what differs between two runs: addresses, ids, versions, times, ages and tokens."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.client_suites.tours import Answer

_PATTERNS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
    (re.compile(r"\b2026-(?!01-02T)\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?( [+-]\d{4} (UTC|\+0000))?"), "<time>"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<time>"),
    (re.compile(r"^[EIW]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", re.MULTILINE), "<log> "),
    (re.compile(r'(resourceVersion\\?"?: ?\\?"?)\d+'), r"\1<version>"),
    (re.compile(r"(Resource Version: +)\d+"), r"\1<version>"),
    (re.compile(r"(?<![\w-])(\d+d)?(\d+h)?(\d+m)?\d+(s|m|h|d)(?=\s|$)"), "<age>"),
    (re.compile(r"/tmp/(LIVE|MERGED|kubectl-edit)-\d+"), r"/tmp/\1"),
    (re.compile(r"kubectl-edit-\w+\.yaml"), "kubectl-edit.yaml"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"(?<=\S) {2,}"), "  "),
)


@dataclass(frozen=True, slots=True)
class Normalizer:
    """`replaced` are the texts that only one of the servers has, such as its URL, with their placeholders."""

    replaced: Mapping[str, str]

    def answer(self, answer: Answer) -> Answer:
        return Answer(answer.code, self.text(_sort_json(answer.output)), self.text(answer.error))

    def text(self, text: str) -> str:
        for value, placeholder in self.replaced.items():
            text = text.replace(value, placeholder)
        for pattern, placeholder in _PATTERNS:
            text = pattern.sub(placeholder, text)
        return "\n".join(line.rstrip() for line in text.splitlines())


def _sort_json(output: str) -> str:
    """JSON with its keys in order, indented. Other output as it is."""
    if not output.lstrip().startswith(("{", "[")):
        return output
    try:
        return json.dumps(json.loads(output), indent=1, sort_keys=True)
    except ValueError:
        return output
