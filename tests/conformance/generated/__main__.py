"""`python -m tests.conformance.generated`: plays fresh lives on a reference and on Fairlead, side by side.

For every life that differs it prints the first difference and the shortest life that still shows it, and the exit code
is 1. `--record` writes the recorded set instead.
"""

import argparse
import json
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.generated.comparison import Difference, allowed_rules, find_difference
from tests.conformance.generated.connection import Target
from tests.conformance.generated.lives import make_life
from tests.conformance.generated.recording import RECORDED, RecordedLife, Recording, is_conclusive, write_recording
from tests.conformance.generated.runner import Runner
from tests.conformance.generated.servers import prepare_reference, running_target
from tests.conformance.generated.shrinking import shrink
from tests.conformance.generated.steps import Life, life_to_json


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    reference = Target(given.reference, given.token, ca_file=given.ca_file)
    version = prepare_reference(reference)
    lives = (make_life(given.seed, number, given.kinds) for number in range(given.first, given.first + given.count))
    if given.record:
        return _record(reference, version, list(lives), given.record)
    with running_target(Path(tempfile.mkdtemp(prefix="fairlead-conformance-"))) as (target, _):
        pair = _Pair(Runner(reference), Runner(target), given.strict)
        differing = 0
        for life in lives:
            difference = pair.find_difference(life)
            if difference is None:
                continue
            differing += 1
            _report(pair, life, difference, given.shrink)
            if differing >= given.stop_after:
                break
    count = life_number(life.name) - given.first + 1
    print(f"seed {given.seed}: {count} lives on {version} and on Fairlead, {differing} with a difference")
    return 1 if differing else 0


def life_number(name: str) -> int:
    return int(name.rpartition("-")[2])


class _Pair:
    """The reference and Fairlead."""

    def __init__(self, reference: Runner, target: Runner, strict: bool) -> None:
        self._reference, self._target = reference, target
        self._rules = () if strict else allowed_rules()

    def find_difference(self, life: Life) -> Difference | None:
        alternatives = self._reference.play_orders(life)
        return find_difference(life.kind, alternatives, self._target.play(life), self._rules)


def _report(pair: _Pair, life: Life, difference: Difference, shrinking: bool) -> None:
    print(f"\nlife {life.name} ({life.kind}): {difference}")
    if shrinking:
        shortest = shrink(life, lambda smaller: pair.find_difference(smaller) is not None)
        shown = pair.find_difference(shortest)
        print(f"  the shortest life that differs: {shown or 'it does not differ every time'}")
        life = shortest
    for number, step in enumerate(life_to_json(life)["steps"], start=1):
        print(f"  {number}. {json.dumps(step, ensure_ascii=False)}")
    sys.stdout.flush()


def _record(reference: Target, version: str, lives: Sequence[Life], path: Path) -> int:
    runner = Runner(reference)
    played = [RecordedLife(life, runner.play_orders(life)) for life in lives]
    recorded = tuple(each for each in played if is_conclusive(each.alternatives))
    write_recording(Recording(version, recorded), path)
    print(f"{len(recorded)} lives on {version}: {path}, {path.stat().st_size} bytes")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.generated", description=__doc__)
    parser.add_argument("--reference", required=True, help="URL of a kube-apiserver")
    parser.add_argument("--token", required=True, help="bearer token of an administrator there")
    parser.add_argument("--ca-file", default="", help="its authority; without, its certificate is not verified")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="which lives; a random one by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first life")
    parser.add_argument("--count", type=int, default=300, help="how many lives")
    parser.add_argument("--kinds", default=(), type=lambda text: text.split(","), help="plurals, or plural.group")
    parser.add_argument("--stop-after", type=int, default=1, help="stop after so many lives with a difference")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print the whole life")
    parser.add_argument("--strict", action="store_true", help="without the rules of allowed.json")
    parser.add_argument("--record", type=Path, nargs="?", const=RECORDED, help="record a set instead")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
