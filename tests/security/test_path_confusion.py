"""Paths that would reach an object from where it is not: T-8 and T-9."""

from functools import partial

import pytest

from tests.harness.server_process import MANAGEMENT, Server
from tests.security import api_resources
from tests.security.api_resources import KEPT, Resource, World
from tests.security.headers import bearer
from tests.security.paths import TRICKS
from tests.security.raw_http import Ask, answers

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="session")
def found(shared: Server) -> World:
    with shared.client() as client:
        explored = api_resources.explore(client, shared.key)
        api_resources.furnish(client, explored)
        return explored


def statuses(server: Server, path: str) -> dict[str, int]:
    """What each method gets, as a rehearsal."""
    merge = {"Content-Type": "application/merge-patch+json"}
    with server.client() as client:
        return {
            method: client.request(
                method,
                f"{path}?dryRun=All",
                json={} if method in ("POST", "PUT", "PATCH") else None,
                headers=merge if method == "PATCH" else {},
            ).status_code
            for method in METHODS
        }


def cluster_wide(found: World) -> list[Resource]:
    return [each for each in found.resources if not each.namespaced]


@pytest.mark.parametrize("namespace", ["storm-0", KEPT, "no-such-namespace"])
def test_t8_what_is_cluster_wide_is_in_no_namespace(server: Server, found: World, namespace: str) -> None:
    for resource in cluster_wide(found):
        for rest in ("", f"/{KEPT}", f"/{KEPT}/status"):
            path = f"{resource.root}/namespaces/{namespace}/{resource.plural}{rest}"
            assert statuses(server, path) == dict.fromkeys(METHODS, 404), path


def test_t8_what_is_in_a_namespace_cannot_be_named_without_it(server: Server, found: World) -> None:
    for resource in (each for each in found.resources if each.namespaced):
        for rest in (f"/{KEPT}", f"/{KEPT}/status"):
            path = f"{resource.root}/{resource.plural}{rest}"
            assert statuses(server, path) == dict.fromkeys(METHODS, 404), path


def test_t8_what_is_in_namespaces_can_be_listed_across_them_but_not_written(server: Server, found: World) -> None:
    for resource in (each for each in found.resources if each.namespaced and each.stored):
        answers = statuses(server, f"{resource.root}/{resource.plural}")
        assert (answers.pop("GET"), answers.pop("HEAD")) == (200, 200)
        assert set(answers.values()) == {405}, resource.plural


def test_t8_an_empty_namespace_is_none(server: Server, found: World) -> None:
    for resource in (each for each in found.resources if each.namespaced):
        path = f"{resource.root}/namespaces//{resource.plural}"
        assert set(statuses(server, path).values()) <= {400, 404}, path


def test_t8_a_kind_is_not_in_other_groups_or_versions(server: Server, found: World) -> None:
    served = {(each.root, each.plural) for each in found.resources}
    for resource in found.resources:
        for other in (
            "api/v1",
            "api/v2",
            "apis/management.service.sh/v2",
            "apis/example.com/v1",
            "apis/coordination.k8s.io/v1",
        ):
            root = f"{MANAGEMENT}/{other}"
            if (root, resource.plural) not in served:
                assert statuses(server, f"{root}/{resource.plural}") == dict.fromkeys(METHODS, 404)


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: repr(trick[:30]))
def test_t9_no_trick_in_a_name_leads_elsewhere(server: Server, found: World, trick: str) -> None:
    ask = partial(Ask, headers=(bearer(server.key),))
    secrets = next(each for each in found.resources if each.kind == "Secret")
    kept = f"{secrets.collection(KEPT)}/{KEPT}"
    uid = answers(server, ask("GET", kept))[0].body.partition(b'"uid":"')[2][:36]
    assert len(uid) == 36
    named = f"{secrets.collection('storm-0')}/{trick}"
    placed = f"{secrets.root}/namespaces/storm-0%2f{trick}/secrets/{KEPT}"
    tried = answers(server, *(ask(method, path) for path in (named, placed) for method in ("GET", "DELETE")))
    assert all(each.status < 500 and uid not in each.body for each in tried)
    assert uid in answers(server, ask("GET", kept))[0].body
