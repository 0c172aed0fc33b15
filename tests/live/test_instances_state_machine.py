"""A stateful test: two clients create, change, migrate and delete projects and virtual clusters at random.

A model predicts the status of each response. Each client writes on top of the copy that it read last, as users with
editors do, so that lost updates are found. After each step, the server must have what the model has. Runs are
deterministic: a failure prints its steps and can be reproduced.
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

from tests.harness.server_process import MANAGEMENT, running_server

VERSION = "management.service.sh/v1"
M = f"{MANAGEMENT}/apis/{VERSION}"
RBAC = "rbac.authorization.k8s.io"
PREFIX = "service-p-"
MERGE = {"Content-Type": "application/merge-patch+json"}
FINALIZER = "example.com/hold"

STEPS = 50
MAX_RUNS = 56
RUNS = (8, pytest.param(MAX_RUNS, marks=pytest.mark.long))
MIN_STEPS_PER_RUN = 35
ATTEMPTS = 50
MIN_COUNT = 3
EXPECTED_OUTCOMES = {
    *(("POST", 201), ("POST", 404), ("POST", 409)),
    *(("GET", 200), ("GET", 404)),
    *(("PUT", 200), ("PUT", 409)),
    *(("PATCH", 200), ("PATCH", 404)),
    *(("DELETE", 200), ("DELETE", 404)),
    *(("MIGRATE", 201), ("MIGRATE", 400), ("MIGRATE", 404), ("MIGRATE", 409)),
}
"""Outcomes that must occur repeatedly: runs in which nothing happens would agree with any model."""

CLIENT = st.sampled_from(["admin", "ada"])
PROJECT = st.sampled_from(["a", "b", "c"])
NAME = st.sampled_from(["one", "two", "three"])
TEXT = st.sampled_from(["red", "green", "blue"])
SELECTION = st.tuples(st.integers(0, 11), PROJECT, NAME)
"""The index of an existing instance, or else a project and a name, where there may be one."""
Selection = tuple[int, str, str]
Location = tuple[str, str]
Response = httpx.Response


@dataclass(frozen=True, slots=True)
class Instance:
    """A virtual cluster in the model. `version` counts writes of clients."""

    owner: str
    text: str
    has_finalizer: bool
    deleting: bool = False
    uid: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """An object as a client read it, and the version of the model at that time."""

    body: dict[str, Any]
    uid: str
    version: int


@dataclass(slots=True)
class RunState:
    """The clients, the number of steps of all runs, and their outcomes."""

    clients: dict[str, httpx.Client]
    run_ids: Iterator[int] = field(default_factory=lambda: count(1))
    steps: int = 0
    outcomes: Counter[tuple[str, int]] = field(default_factory=Counter)


class Machine(RuleBasedStateMachine):
    run_state: ClassVar[RunState]

    def __init__(self) -> None:
        super().__init__()
        self.run_id = f"r{next(self.run_state.run_ids)}"
        self.projects: dict[str, str] = {}
        self.instances: dict[Location, Instance] = {}
        self.copies: dict[tuple[str, Location], Copy] = {}

    @initialize(texts=st.tuples(TEXT, TEXT, TEXT))
    def create_initial_objects(self, texts: tuple[str, str, str]) -> None:
        for project, name, text in zip(("a", "b", "c"), ("one", "one", "two"), texts, strict=True):
            self.create_project("admin", project, text)
            self.create("ada", project, name, text, has_finalizer=False)
            self.fetch("admin", project, name)
            self.fetch("ada", project, name)

    def select(self, selection: Selection) -> Location:
        """Returns mostly the location of an existing instance."""
        number, *location = selection
        existing = sorted(self.instances)
        return existing[number % len(existing)] if existing and number else (location[0], location[1])

    # --- requests of clients -----------------------------------------------------------------------------------------

    @rule(client=CLIENT, project=PROJECT, text=TEXT)
    def create_project(self, client: str, project: str, text: str) -> None:
        spec = {"displayName": text, "requireTemplate": {"disabled": True}}
        response = self.send(client, "POST", "projects", self.build_body("Project", self.project_name(project), spec))
        if self.expect(response, 409 if project in self.projects else 201):
            self.projects[project] = text

    @rule(client=CLIENT, project=PROJECT, text=TEXT)
    def change_project(self, client: str, project: str, text: str) -> None:
        path = f"projects/{self.project_name(project)}"
        response = self.send(client, "PATCH", path, {"spec": {"displayName": text}})
        if self.expect(response, 200 if project in self.projects else 404):
            self.projects[project] = text

    @rule(client=CLIENT, project=PROJECT, confirmed=st.sampled_from([True, False, False]))
    def delete_project(self, client: str, project: str, confirmed: bool) -> None:
        """Not too often, so that projects live long enough. Finalizers of its instances are removed first."""
        if not confirmed:
            return
        for location in [each for each in self.instances if each[0] == project]:
            self.remove_finalizer(client, location)
        response = self.send(client, "DELETE", f"projects/{self.project_name(project)}")
        if self.expect(response, 200 if project in self.projects else 404):
            del self.projects[project]
            self.instances = {location: each for location, each in self.instances.items() if location[0] != project}
            self.wait_for_deletion(client, project)

    @rule(
        client=CLIENT, project=PROJECT, name=NAME, text=TEXT, has_finalizer=st.sampled_from([True, False, False, False])
    )
    def create(self, client: str, project: str, name: str, text: str, has_finalizer: bool) -> None:
        body = self.build_body("VirtualClusterInstance", name, {"displayName": text})
        body["metadata"]["finalizers"] = [FINALIZER] if has_finalizer else []
        response = self.send(client, "POST", self.collection(project), body)
        expected_code = 404 if project not in self.projects else 409 if (project, name) in self.instances else 201
        if self.expect(response, expected_code):
            uid = response.json()["metadata"]["uid"]
            self.instances[project, name] = Instance(client, text, has_finalizer, uid=uid)

    @rule(client=CLIENT, selection=SELECTION)
    def read(self, client: str, selection: Selection) -> None:
        self.fetch(client, *self.select(selection))

    def fetch(self, client: str, project: str, name: str) -> None:
        expected = self.instances.get((project, name))
        response = self.send(client, "GET", self.path(project, name))
        if self.expect(response, 404 if expected is None else 200) and expected is not None:
            self.copies[client, (project, name)] = Copy(response.json(), expected.uid, expected.version)

    @rule(client=CLIENT, selection=SELECTION, text=TEXT)
    def put(self, client: str, selection: Selection, text: str) -> None:
        """Updates the copy that the client read last; reads again if a controller has written in between."""
        location = self.select(selection)
        for _ in range(ATTEMPTS):
            copy, expected = self.copies.get((client, location)), self.instances.get(location)
            if copy is None:
                self.fetch(client, *location)
                return
            body = {**copy.body, "spec": {**copy.body["spec"], "displayName": text}}
            response = self.send(client, "PUT", self.path(*location), body)
            if expected is None or (copy.uid, copy.version) != (expected.uid, expected.version):
                self.expect(response, 404 if expected is None else 409)
                del self.copies[client, location]
                return
            if response.status_code != 409:
                self.expect(response, 200)
                self.record_update(location, text)
                return
            self.fetch(client, *location)
        raise AssertionError(f"{location} changes continuously")

    @rule(client=CLIENT, selection=SELECTION, text=TEXT)
    def patch(self, client: str, selection: Selection, text: str) -> None:
        location = self.select(selection)
        response = self.send(client, "PATCH", self.path(*location), {"spec": {"displayName": text}})
        if self.expect(response, 200 if location in self.instances else 404):
            self.record_update(location, text)

    @rule(client=CLIENT, selection=SELECTION)
    def delete(self, client: str, selection: Selection) -> None:
        location = self.select(selection)
        response = self.send(client, "DELETE", self.path(*location))
        if self.expect(response, 200 if location in self.instances else 404):
            expected = self.instances.pop(location)
            if expected.has_finalizer:
                version = expected.version if expected.deleting else expected.version + 1
                self.instances[location] = replace(expected, deleting=True, version=version)

    @rule(client=CLIENT, selection=SELECTION)
    def release(self, client: str, selection: Selection) -> None:
        self.remove_finalizer(client, self.select(selection))

    def remove_finalizer(self, client: str, location: Location) -> None:
        response = self.send(client, "PATCH", self.path(*location), {"metadata": {"finalizers": None}})
        if self.expect(response, 200 if location in self.instances else 404):
            expected = self.instances.pop(location)
            if not expected.deleting:
                self.instances[location] = replace(
                    expected, has_finalizer=False, version=expected.version + expected.has_finalizer
                )

    @rule(
        client=CLIENT, selection=SELECTION, target_project=PROJECT, dry_run=st.sampled_from([False, False, False, True])
    )
    def migrate(self, client: str, selection: Selection, target_project: str, dry_run: bool) -> None:
        source = self.select(selection)
        project, name = source
        destination = target_project, name
        body: dict[str, Any] = {"sourceVirtualClusterInstance": {"name": name, "namespace": self.namespace(project)}}
        body |= {"apiVersion": VERSION, "kind": "ProjectMigrateVirtualClusterInstance"}
        query = "?dryRun=All" if dry_run else ""
        path = f"projects/{self.project_name(target_project)}/migratevirtualclusterinstance{query}"
        response = self.send(client, "POST", path, body)
        if self.expect(response, self.expected_status(source, destination)) and not dry_run:
            moved = self.send(client, "GET", self.path(*destination)).json()
            uid, expected = moved["metadata"]["uid"], self.instances.pop(source)
            assert uid != expected.uid
            self.instances[destination] = replace(expected, uid=uid)

    # --- expected outcomes -------------------------------------------------------------------------------------------

    def expected_status(self, source: Location, destination: Location) -> int:
        if source == destination:
            return 400
        if source not in self.instances or destination[0] not in self.projects:
            return 404
        return 409 if self.instances[source].deleting or destination in self.instances else 201

    def record_update(self, location: Location, text: str) -> None:
        expected = self.instances[location]
        self.instances[location] = replace(expected, text=text, version=expected.version + (text != expected.text))

    @invariant()
    def server_matches_model(self) -> None:
        self.run_state.steps += 1
        client = ("admin", "ada")[self.run_state.steps % 2]
        found = self.list_objects(client, "virtualclusterinstances")
        assert {self.get_location(each): self.get_observed_state(each) for each in found} == {
            location: (expected.owner, expected.text, expected.has_finalizer, expected.deleting, expected.uid)
            for location, expected in self.instances.items()
        }
        assert len(found) == len(self.instances)
        projects = {
            each["metadata"]["name"]: each["spec"]["displayName"] for each in self.list_objects(client, "projects")
        }
        assert projects == {self.project_name(project): text for project, text in self.projects.items()}

    def list_objects(self, client: str, plural: str) -> list[dict[str, Any]]:
        response = self.send(client, "GET", f"{plural}?labelSelector=run%3D{self.run_id}")
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["items"]
        return found

    def get_location(self, found: dict[str, Any]) -> Location:
        meta = found["metadata"]
        return meta["namespace"].removeprefix(self.namespace("")), meta["name"]

    def get_observed_state(self, found: dict[str, Any]) -> tuple[str, str, bool, bool, str]:
        meta, spec = found["metadata"], found["spec"]
        has_finalizer, deleting = FINALIZER in meta.get("finalizers", ()), "deletionTimestamp" in meta
        return spec["owner"]["user"], spec["displayName"], has_finalizer, deleting, meta["uid"]

    # --- requests and paths ------------------------------------------------------------------------------------------

    def expect(self, response: Response, code: int) -> bool:
        """Checks the status code; returns whether it is a success."""
        method, path = response.request.method, response.request.url.path
        assert response.status_code == code, f"{method} {path}: {response.text}"
        self.run_state.outcomes["MIGRATE" if path.endswith("migratevirtualclusterinstance") else method, code] += 1
        return response.is_success

    def send(self, client: str, method: str, path: str, content: Any = None) -> Response:
        headers = MERGE if method == "PATCH" else None
        return self.run_state.clients[client].request(method, f"{M}/{path}", json=content, headers=headers)

    def build_body(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        meta = {"name": name, "labels": {"run": self.run_id}}
        return {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec}

    def project_name(self, project: str) -> str:
        """Each run has projects of its own, since all runs use one server."""
        return f"{self.run_id}-{project}"

    def namespace(self, project: str) -> str:
        return f"{PREFIX}{self.project_name(project)}"

    def collection(self, project: str) -> str:
        return f"namespaces/{self.namespace(project)}/virtualclusterinstances"

    def path(self, project: str, name: str) -> str:
        return f"{self.collection(project)}/{name}"

    def wait_for_deletion(self, client: str, project: str) -> None:
        """Waits with a watch: the objects of a deleted project are deleted first."""
        selector = f"metadata.name%3D{self.project_name(project)}"
        with self.run_state.clients[client].stream(
            "GET", f"{M}/projects?watch=true&timeoutSeconds=20&fieldSelector={selector}"
        ) as watch:
            for line in watch.iter_lines():
                if line.startswith('{"type":"DELETED"'):
                    return
                if self.send(client, "GET", f"projects/{self.project_name(project)}").status_code == 404:
                    return
        assert self.send(client, "GET", f"projects/{self.project_name(project)}").status_code == 404

    def teardown(self) -> None:
        for location in list(self.instances):
            self.remove_finalizer("admin", location)
        for project in self.projects:
            self.send("admin", "DELETE", f"projects/{self.project_name(project)}")


@pytest.fixture
def run_state(tmp_path: Path) -> Iterator[RunState]:
    """A server with two administrators, so that only the state decides the outcome."""
    with running_server(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/users", json=build_object("User", "ada")).raise_for_status()
        key = admin.post(
            f"{M}/ownedaccesskeys", json={**build_object("OwnedAccessKey", "ada"), "spec": {"user": "ada"}}
        )
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": RBAC, "kind": "User", "name": "ada"}
        binding = {"metadata": {"name": "ada"}, "roleRef": role, "subjects": [subject]}
        admin.post(f"{MANAGEMENT}/apis/{RBAC}/v1/clusterrolebindings", json=binding).raise_for_status()
        with server.client(key.json()["spec"]["key"]) as ada:
            yield RunState({"admin": admin, "ada": ada})
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


def build_object(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}}


@pytest.mark.parametrize("runs", RUNS)
def test_the_server_and_the_model_agree(run_state: RunState, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "run_state", run_state, raising=False)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert run_state.steps >= runs * MIN_STEPS_PER_RUN
    if runs == MAX_RUNS:  # fewer runs do not reach all outcomes
        assert {outcome for outcome, times in run_state.outcomes.items() if times >= MIN_COUNT} >= EXPECTED_OUTCOMES
