"""Plays tours with kubectl on a reference and on Fairlead, and compares what each command did."""

import difflib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.client_suites.normalization import Normalizer
from tests.client_suites.servers import ApiServer
from tests.client_suites.tours import Answer, Command, Place, Tour
from tests.harness.server_process import MANAGEMENT


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command with the normalized answers of the reference and of Fairlead."""

    command: Command
    expected: Answer
    got: Answer

    @property
    def is_equal(self) -> bool:
        return self.expected == self.got

    @property
    def is_right(self) -> bool:
        """The answers are equal, or differ as the tour says. A reason for a difference that is none is wrong."""
        if not self.command.difference:
            return self.is_equal
        return not self.is_equal and self.command.has_other_code == (self.expected.code != self.got.code)

    def __str__(self) -> str:
        lines = [f"line {self.command.line}: {self.command.text}"]
        if self.command.difference:
            lines.append(f"    the tour says that it differs, and not as it does: {self.command.difference}")
        if self.expected.code != self.got.code:
            lines.append(f"    exit code: expected {self.expected.code}, got {self.got.code}")
        for name in ("output", "error"):
            expected, got = getattr(self.expected, name).splitlines(), getattr(self.got, name).splitlines()
            lines += (f"    {name}: {line}" for line in list(difflib.unified_diff(expected, got, n=1, lineterm=""))[2:])
        return "\n".join(lines)


def play_tour(tour: Tour, servers: tuple[ApiServer, ApiServer], kubectl: Path, folder: Path) -> list[Outcome]:
    """Plays the tour on both servers at once, the reference first in the pair."""
    with ThreadPoolExecutor(2) as pool:
        played = [pool.submit(_play, tour, server, kubectl, folder / server.name / tour.name) for server in servers]
    expected, got = (each.result() for each in played)
    return [Outcome(*each) for each in zip(tour.commands, expected, got, strict=True)]


def _play(tour: Tour, server: ApiServer, kubectl: Path, folder: Path) -> list[Answer]:
    programs, work = folder / "programs", folder / "work"
    programs.mkdir(parents=True)
    work.mkdir()
    (programs / "kubectl").symlink_to(kubectl.resolve())
    place = Place(work, programs, folder / "kubeconfig")
    place.kubeconfig.write_text(server.kubeconfig(tour.namespace))
    replaced = {server.url: "<server>", server.url.removesuffix(MANAGEMENT): "<server>"}
    normalizer = Normalizer(replaced | {str(work): "<folder>", str(place.kubeconfig): "<kubeconfig>"})
    return list(_run_commands(tour, place, normalizer))


def _run_commands(tour: Tour, place: Place, normalizer: Normalizer) -> Iterator[Answer]:
    place.run(f"kubectl delete namespace {tour.namespace} --ignore-not-found")
    created = place.run(f"kubectl create namespace {tour.namespace}")
    if created.code:
        raise RuntimeError(f"tour {tour.name} has no namespace: {created.error}")
    for command in tour.commands:
        yield normalizer.answer(place.run(command.text))
    place.run(f"kubectl delete namespace {tour.namespace} --wait=false")
