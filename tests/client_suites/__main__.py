"""`python -m tests.client_suites`: real clients against a real kube-apiserver and Fairlead, side by side.

Plays tours with kubectl on both servers and compares what each command did, and runs the test suites of Python clients.
The exit code is 1 if kubectl can tell the servers apart in a way that the tour does not explain, or if a test of a
client fails on Fairlead and not on the reference.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from tests.client_suites.kubectl_tours import Outcome, play_tour
from tests.client_suites.python_suites import SUITES, InstalledSuite, Result, find_differences, not_applicable
from tests.client_suites.servers import ApiServer, existing_reference, running_fairlead, running_reference
from tests.client_suites.tours import read_tours

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    with _work_folder(given.keep) as folder, running_fairlead(folder) as ours, _reference(given) as reference:
        differences = 0
        if reference is not None and not given.no_tours:
            differences += _play_tours(given.tours, (reference, ours), given.kubectl, folder)
        for name, clone in given.suites:
            differences += _run_suite(name, clone, [each for each in (reference, ours) if each], given.kubectl, folder)
    return 1 if differences else 0


def _play_tours(names: Sequence[str], servers: tuple[ApiServer, ApiServer], kubectl: Path, folder: Path) -> int:
    print(f"{'tour':20} {'commands':>8} {'equal':>6} {'explained':>10} {'wrong':>6}")
    total: Counter[str] = Counter()
    for tour in read_tours(names):
        outcomes = play_tour(tour, servers, kubectl, folder / "tours")
        wrong = [each for each in outcomes if not each.is_right]
        counted = _count(outcomes, len(wrong))
        total += counted
        _print_row(tour.name, counted)
        for outcome in wrong:
            print(outcome)
        sys.stdout.flush()
    _print_row("all", total)
    return total["wrong"]


def _count(outcomes: Sequence[Outcome], wrong: int) -> Counter[str]:
    equal = sum(each.is_equal and each.is_right for each in outcomes)
    return Counter(commands=len(outcomes), equal=equal, explained=len(outcomes) - equal - wrong, wrong=wrong)


def _print_row(name: str, counted: Counter[str]) -> None:
    numbers = (counted[column] for column in ("commands", "equal", "explained", "wrong"))
    print("{:20} {:>8} {:>6} {:>10} {:>6}".format(name, *numbers))


def _run_suite(name: str, clone: Path, servers: Sequence[ApiServer], kubectl: Path, folder: Path) -> int:
    suite = InstalledSuite.install(next(each for each in SUITES if each.name == name), clone, folder / name)
    results = {server.name: suite.run(server, kubectl) for server in servers}
    for server, found in results.items():
        outcomes = Counter(each.outcome for each in found.values())
        print(f"{name} on {server}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}")
    ours, expected = results["fairlead"], results.get("reference", {})
    _print_reasons(name, ours)
    for test, result in expected.items():
        if result.is_failure:
            print(f"  fails on the reference, {ours[test].outcome} on Fairlead: {test}: {result.message[:200]}")
    different = list(find_differences(expected, ours))
    for test, result in different:
        print(f"  fails on Fairlead only: {test}: {result.message[:300]}")
    sys.stdout.flush()
    return len(different)


def _print_reasons(name: str, results: Mapping[str, Result]) -> None:
    count = sum(each.outcome == "not applicable" for each in results.values())
    print(f"  {count} not applicable: {'; '.join(dict.fromkeys(not_applicable(name).values()))}")


@contextmanager
def _work_folder(keep: bool) -> Iterator[Path]:
    if keep:
        folder = Path(tempfile.mkdtemp(prefix="fairlead-clients-"))
        print(f"everything that is written is in {folder}")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="fairlead-clients-") as name:
        yield Path(name)


def _reference(given: argparse.Namespace) -> AbstractContextManager[ApiServer | None]:
    if given.reference:
        return running_reference(given.reference / "bin")
    if given.reference_url:
        return existing_reference(given.reference_url, given.token, given.ca_file)
    return nullcontext()


def _suite_argument(text: str) -> tuple[str, Path]:
    name, _, clone = text.partition("=")
    if name not in [suite.name for suite in SUITES] or not Path(clone).is_dir():
        known = ", ".join(suite.name for suite in SUITES)
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER, with one of {known} and a clone of its repository")
    return name, Path(clone).resolve()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.client_suites", description=__doc__)
    parser.add_argument("--reference", type=Path, help="folder whose bin has kube-apiserver, its controllers and etcd")
    parser.add_argument("--reference-url", default="", help="URL of a kube-apiserver that runs already")
    parser.add_argument("--token", default="", help="bearer token of an administrator there")
    parser.add_argument("--ca-file", default="", help="its authority; without, its certificate is not verified")
    parser.add_argument("--kubectl", type=Path, default=ROOT / ".tools" / "bin" / "kubectl", help="the kubectl to use")
    parser.add_argument("--tours", default=(), type=lambda text: text.split(","), help="names of tours; all by default")
    parser.add_argument("--no-tours", action="store_true", help="run the suites only")
    parser.add_argument(
        *("--suite", "-s"), dest="suites", action="append", default=[], type=_suite_argument, metavar="NAME=FOLDER"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and files")
    given = parser.parse_args(arguments)
    given.kubectl = given.kubectl.resolve()
    return given


if __name__ == "__main__":
    sys.exit(main())
