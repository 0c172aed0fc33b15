"""Two clients make, change, move and delete projects and virtual clusters at random; a model says what must come of it.

Each client keeps what it has read last and writes on top of that, as people with editors do, so that lost updates would
show. After each step everything that the server has must be what the model has. Runs are always the same: a failure
names its steps, and comes again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.harness.server_process import MANAGEMENT, running

VERSION = "management.service.sh/v1"
M = f"{MANAGEMENT}/apis/{VERSION}"
RBAC = "rbac.authorization.k8s.io"
PREFIX = "service-p-"
MERGE = {"Content-Type": "application/merge-patch+json"}
HOLD = "example.com/hold"

STEPS, STORIES = 50, 56
AT_LEAST = 2_000
ATTEMPTS = 50
OFTEN = 3
EVERY_OUTCOME = {
    *(("POST", 201), ("POST", 404), ("POST", 409)),
    *(("GET", 200), ("GET", 404)),
    *(("PUT", 200), ("PUT", 409)),
    *(("PATCH", 200), ("PATCH", 404)),
    *(("DELETE", 200), ("DELETE", 404)),
    *(("MIGRATE", 201), ("MIGRATE", 400), ("MIGRATE", 404), ("MIGRATE", 409)),
}
"""What must have happened, and not just once: stories in which nothing happens would agree with any model."""

CLIENT = st.sampled_from(["admin", "ada"])
PROJECT = st.sampled_from(["a", "b", "c"])
NAME = st.sampled_from(["one", "two", "three"])
TEXT = st.sampled_from(["red", "green", "blue"])
PICK = st.tuples(st.integers(0, 11), PROJECT, NAME)
"""A number for one of the instances that there are, or else a place where there may be one."""
Pick = tuple[int, str, str]
Place = tuple[str, str]
Answer = httpx.Response


@dataclass(frozen=True, slots=True)
class Instance:
    """What the model knows of a virtual cluster. `version` counts what clients have written."""

    owner: str
    text: str
    held: bool
    going: bool = False
    uid: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """An object as a client has read it, and the version of the model's at that time."""

    body: dict[str, Any]
    uid: str
    version: int


@dataclass(slots=True)
class Stage:
    """The server's clients, how many steps have been done in all stories, and what came of them."""

    clients: dict[str, httpx.Client]
    stories: Iterator[int] = field(default_factory=lambda: count(1))
    steps: int = 0
    outcomes: Counter[tuple[str, int]] = field(default_factory=Counter)


class Machine(RuleBasedStateMachine):
    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        self.story = f"s{next(self.stage.stories)}"
        self.projects: dict[str, str] = {}
        self.instances: dict[Place, Instance] = {}
        self.copies: dict[tuple[str, Place], Copy] = {}

    @initialize(texts=st.tuples(TEXT, TEXT, TEXT))
    def open_projects(self, texts: tuple[str, str, str]) -> None:
        for project, name, text in zip(("a", "b", "c"), ("one", "one", "two"), texts, strict=True):
            self.create_project("admin", project, text)
            self.create("ada", project, name, text, held=False)
            self.fetch("admin", project, name)
            self.fetch("ada", project, name)

    def picked(self, pick: Pick) -> Place:
        """Mostly something that there is: of what there is not, there is not much to say."""
        number, *elsewhere = pick
        there = sorted(self.instances)
        return there[number % len(there)] if there and number else (elsewhere[0], elsewhere[1])

    # --- what clients do ---------------------------------------------------------------------------------------------

    @rule(client=CLIENT, project=PROJECT, text=TEXT)
    def create_project(self, client: str, project: str, text: str) -> None:
        spec = {"displayName": text, "requireTemplate": {"disabled": True}}
        answer = self.send(client, "POST", "projects", self.body("Project", self.called(project), spec))
        if self.expect(answer, 409 if project in self.projects else 201):
            self.projects[project] = text

    @rule(client=CLIENT, project=PROJECT, text=TEXT)
    def change_project(self, client: str, project: str, text: str) -> None:
        path = f"projects/{self.called(project)}"
        answer = self.send(client, "PATCH", path, {"spec": {"displayName": text}})
        if self.expect(answer, 200 if project in self.projects else 404):
            self.projects[project] = text

    @rule(client=CLIENT, project=PROJECT, sure=st.sampled_from([True, False, False]))
    def delete_project(self, client: str, project: str, sure: bool) -> None:
        """Not too often, or nothing would ever happen in projects. What is held in it is let go first."""
        if not sure:
            return
        for place in [each for each in self.instances if each[0] == project]:
            self.let_go(client, place)
        answer = self.send(client, "DELETE", f"projects/{self.called(project)}")
        if self.expect(answer, 200 if project in self.projects else 404):
            del self.projects[project]
            self.instances = {place: each for place, each in self.instances.items() if place[0] != project}
            self.await_end(client, project)

    @rule(client=CLIENT, project=PROJECT, name=NAME, text=TEXT, held=st.sampled_from([True, False, False, False]))
    def create(self, client: str, project: str, name: str, text: str, held: bool) -> None:
        sent = self.body("VirtualClusterInstance", name, {"displayName": text})
        sent["metadata"]["finalizers"] = [HOLD] if held else []
        answer = self.send(client, "POST", self.collection(project), sent)
        expected = 404 if project not in self.projects else 409 if (project, name) in self.instances else 201
        if self.expect(answer, expected):
            uid = answer.json()["metadata"]["uid"]
            self.instances[project, name] = Instance(client, text, held, uid=uid)

    @rule(client=CLIENT, pick=PICK)
    def read(self, client: str, pick: Pick) -> None:
        self.fetch(client, *self.picked(pick))

    def fetch(self, client: str, project: str, name: str) -> None:
        known = self.instances.get((project, name))
        answer = self.send(client, "GET", self.path(project, name))
        if self.expect(answer, 404 if known is None else 200) and known is not None:
            self.copies[client, (project, name)] = Copy(answer.json(), known.uid, known.version)

    @rule(client=CLIENT, pick=PICK, text=TEXT)
    def put(self, client: str, pick: Pick, text: str) -> None:
        """On top of what the client has read last. Controllers write as well, and then one reads again."""
        place = self.picked(pick)
        for _ in range(ATTEMPTS):
            copy, known = self.copies.get((client, place)), self.instances.get(place)
            if copy is None:
                self.fetch(client, *place)
                return
            sent = {**copy.body, "spec": {**copy.body["spec"], "displayName": text}}
            answer = self.send(client, "PUT", self.path(*place), sent)
            if known is None or (copy.uid, copy.version) != (known.uid, known.version):
                self.expect(answer, 404 if known is None else 409)
                del self.copies[client, place]
                return
            if answer.status_code != 409:
                self.expect(answer, 200)
                self.written(place, text)
                return
            self.fetch(client, *place)
        raise AssertionError(f"{place} changes all the time")

    @rule(client=CLIENT, pick=PICK, text=TEXT)
    def patch(self, client: str, pick: Pick, text: str) -> None:
        place = self.picked(pick)
        answer = self.send(client, "PATCH", self.path(*place), {"spec": {"displayName": text}})
        if self.expect(answer, 200 if place in self.instances else 404):
            self.written(place, text)

    @rule(client=CLIENT, pick=PICK)
    def delete(self, client: str, pick: Pick) -> None:
        place = self.picked(pick)
        answer = self.send(client, "DELETE", self.path(*place))
        if self.expect(answer, 200 if place in self.instances else 404):
            known = self.instances.pop(place)
            if known.held:
                version = known.version if known.going else known.version + 1
                self.instances[place] = replace(known, going=True, version=version)

    @rule(client=CLIENT, pick=PICK)
    def release(self, client: str, pick: Pick) -> None:
        self.let_go(client, self.picked(pick))

    def let_go(self, client: str, place: Place) -> None:
        answer = self.send(client, "PATCH", self.path(*place), {"metadata": {"finalizers": None}})
        if self.expect(answer, 200 if place in self.instances else 404):
            known = self.instances.pop(place)
            if not known.going:
                self.instances[place] = replace(known, held=False, version=known.version + known.held)

    @rule(client=CLIENT, pick=PICK, goal=PROJECT, dry=st.sampled_from([False, False, False, True]))
    def migrate(self, client: str, pick: Pick, goal: str, dry: bool) -> None:
        here = self.picked(pick)
        source, name = here
        there = goal, name
        sent: dict[str, Any] = {"sourceVirtualClusterInstance": {"name": name, "namespace": self.namespace(source)}}
        sent |= {"apiVersion": VERSION, "kind": "ProjectMigrateVirtualClusterInstance"}
        path = f"projects/{self.called(goal)}/migratevirtualclusterinstance{'?dryRun=All' if dry else ''}"
        answer = self.send(client, "POST", path, sent)
        if self.expect(answer, self.outcome(here, there)) and not dry:
            moved = self.send(client, "GET", self.path(*there)).json()
            uid, known = moved["metadata"]["uid"], self.instances.pop(here)
            assert uid != known.uid
            self.instances[there] = replace(known, uid=uid)

    # --- what must come of it ----------------------------------------------------------------------------------------

    def outcome(self, here: Place, there: Place) -> int:
        if here == there:
            return 400
        if here not in self.instances or there[0] not in self.projects:
            return 404
        return 409 if self.instances[here].going or there in self.instances else 201

    def written(self, place: Place, text: str) -> None:
        known = self.instances[place]
        self.instances[place] = replace(known, text=text, version=known.version + (text != known.text))

    @invariant()
    def the_server_has_what_the_model_has(self) -> None:
        self.stage.steps += 1
        client = ("admin", "ada")[self.stage.steps % 2]
        found = self.listed(client, "virtualclusterinstances")
        assert {self.place(each): self.seen(each) for each in found} == {
            place: (known.owner, known.text, known.held, known.going, known.uid)
            for place, known in self.instances.items()
        }
        assert len(found) == len(self.instances)
        projects = {each["metadata"]["name"]: each["spec"]["displayName"] for each in self.listed(client, "projects")}
        assert projects == {self.called(project): text for project, text in self.projects.items()}

    def listed(self, client: str, plural: str) -> list[dict[str, Any]]:
        answer = self.send(client, "GET", f"{plural}?labelSelector=story%3D{self.story}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def place(self, found: dict[str, Any]) -> Place:
        meta = found["metadata"]
        return meta["namespace"].removeprefix(self.namespace("")), meta["name"]

    def seen(self, found: dict[str, Any]) -> tuple[str, str, bool, bool, str]:
        meta, spec = found["metadata"], found["spec"]
        held, going = HOLD in meta.get("finalizers", ()), "deletionTimestamp" in meta
        return spec["owner"]["user"], spec["displayName"], held, going, meta["uid"]

    # --- how it is said ----------------------------------------------------------------------------------------------

    def expect(self, answer: Answer, code: int) -> bool:
        """Checks the code; whether it is one of success."""
        method, path = answer.request.method, answer.request.url.path
        assert answer.status_code == code, f"{method} {path}: {answer.text}"
        self.stage.outcomes["MIGRATE" if path.endswith("migratevirtualclusterinstance") else method, code] += 1
        return answer.is_success

    def send(self, client: str, method: str, path: str, content: Any = None) -> Answer:
        headers = MERGE if method == "PATCH" else None
        return self.stage.clients[client].request(method, f"{M}/{path}", json=content, headers=headers)

    def body(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        meta = {"name": name, "labels": {"story": self.story}}
        return {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec}

    def called(self, project: str) -> str:
        """Each story has projects of its own, since all of them play on one server."""
        return f"{self.story}-{project}"

    def namespace(self, project: str) -> str:
        return f"{PREFIX}{self.called(project)}"

    def collection(self, project: str) -> str:
        return f"namespaces/{self.namespace(project)}/virtualclusterinstances"

    def path(self, project: str, name: str) -> str:
        return f"{self.collection(project)}/{name}"

    def await_end(self, client: str, project: str) -> None:
        """A deleted project is emptied first, and a watch tells when it has gone."""
        where = f"metadata.name%3D{self.called(project)}"
        with self.stage.clients[client].stream(
            "GET", f"{M}/projects?watch=true&timeoutSeconds=20&fieldSelector={where}"
        ) as watch:
            for line in watch.iter_lines():
                if line.startswith('{"type":"DELETED"'):
                    return
                if self.send(client, "GET", f"projects/{self.called(project)}").status_code == 404:
                    return
        assert self.send(client, "GET", f"projects/{self.called(project)}").status_code == 404

    def teardown(self) -> None:
        for place in list(self.instances):
            self.let_go("admin", place)
        for project in self.projects:
            self.send("admin", "DELETE", f"projects/{self.called(project)}")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A server with two who may do everything, so that only the state of things decides."""
    with running(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/users", json=_named("User", "ada")).raise_for_status()
        key = admin.post(f"{M}/ownedaccesskeys", json={**_named("OwnedAccessKey", "ada"), "spec": {"user": "ada"}})
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": RBAC, "kind": "User", "name": "ada"}
        binding = {"metadata": {"name": "ada"}, "roleRef": role, "subjects": [subject]}
        admin.post(f"{MANAGEMENT}/apis/{RBAC}/v1/clusterrolebindings", json=binding).raise_for_status()
        with server.client(key.json()["spec"]["key"]) as ada:
            yield Stage({"admin": admin, "ada": ada})
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}}


def test_the_server_and_the_model_agree_on_two_thousand_steps(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "stage", stage, raising=False)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=STORIES,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert stage.steps >= AT_LEAST
    assert {outcome for outcome, times in stage.outcomes.items() if times >= OFTEN} >= EVERY_OUTCOME
