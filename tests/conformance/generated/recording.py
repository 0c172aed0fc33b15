"""The recorded set: lives with the answers of the reference, in `recorded.json.gz`."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.generated.steps import Life, life_from_json, life_to_json

Answer = dict[str, Any]
RECORDED = Path(__file__).with_name("recorded.json.gz")


@dataclass(frozen=True, slots=True)
class RecordedLife:
    """A life, and the answers that are right: one sequence, or one for each order of its races."""

    life: Life
    alternatives: Sequence[Sequence[Answer]]


def is_conclusive(alternatives: Sequence[Sequence[Answer]]) -> bool:
    """Whether everything that the life waited for has happened. Others would wait as long in each replay."""
    return not any("waited" in answer for answers in alternatives for answer in answers)


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded lives, and the version of the server that answered."""

    version: str
    lives: tuple[RecordedLife, ...]


def read_recording(path: Path = RECORDED) -> Recording:
    document = json.loads(gzip.decompress(path.read_bytes()))
    lives = tuple(RecordedLife(life_from_json(entry["life"]), entry["answers"]) for entry in document["lives"])
    return Recording(document["version"], lives)


def write_recording(recording: Recording, path: Path = RECORDED) -> None:
    lives = [{"life": life_to_json(each.life), "answers": each.alternatives} for each in recording.lives]
    document = {"version": recording.version, "lives": lives}
    data = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, mtime=0))
