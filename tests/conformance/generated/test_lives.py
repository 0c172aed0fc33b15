"""The generator: deterministic, and it covers every kind, verb, patch type and kind of step."""

import json
from collections import Counter

import pytest

from fairlead.kinds import KINDS
from tests.conformance.generated.kinds import CONTROLLED, NOT_GENERATED, generated_kinds
from tests.conformance.generated.lives import make_life
from tests.conformance.generated.steps import Life, Race, Request, Watch, life_from_json, life_to_json, requests_of

LIVES = [make_life("coverage", number) for number in range(600)]


def test_the_same_seed_makes_the_same_lives() -> None:
    again = [make_life("coverage", number) for number in range(40)]
    assert [life_to_json(life) for life in again] == [life_to_json(life) for life in LIVES[:40]]
    assert make_life("another", 0).steps != LIVES[0].steps


def test_a_life_is_the_same_after_it_was_stored() -> None:
    for life in LIVES[:100]:
        assert life_from_json(json.loads(json.dumps(life_to_json(life)))) == life


def test_every_served_kind_has_lives_or_a_reason_for_having_none() -> None:
    served = {kind.plural for kind in KINDS if kind.persisted}
    covered = {kind.plural for kind in generated_kinds()}
    assert covered | NOT_GENERATED.keys() == served
    assert not covered & NOT_GENERATED.keys()


def test_every_kind_is_chosen() -> None:
    assert {life.kind for life in LIVES} == {kind.key for kind in generated_kinds()}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_every_verb_is_used_on_most_kinds(method: str) -> None:
    kinds = {life.kind for life in LIVES if any(request.method == method for request in requests_of(life))}
    writable = {kind.key for kind in generated_kinds() if kind.plural not in CONTROLLED}
    assert kinds >= writable


def test_every_patch_type_and_subresource_is_used() -> None:
    types = Counter(request.headers.get("Content-Type", "") for life in LIVES for request in requests_of(life))
    for name in ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
        assert types[f"application/{name}"] > 50
    paths = {request.path.partition("?")[0].rpartition("/")[2] for life in LIVES for request in requests_of(life)}
    assert paths >= {"status", "finalize", "scale"}


def test_lives_have_watches_races_and_deletions_of_collections() -> None:
    steps = [step for life in LIVES for step in life.steps]
    assert sum(isinstance(step, Watch) for step in steps) > 20
    assert sum(isinstance(step, Race) for step in steps) > 20
    requests = [request for life in LIVES for request in requests_of(life)]
    assert sum(request.method == "DELETE" and "labelSelector" in request.path for request in requests) > 10


def test_a_life_has_one_race_at_most() -> None:
    """Its answers are compared with those of two orders; two races would have four."""
    assert all(sum(isinstance(step, Race) for step in life.steps) <= 1 for life in LIVES)


def test_lives_can_be_restricted_to_kinds() -> None:
    lives = [make_life("some", number, ["configmaps", "events.events.k8s.io"]) for number in range(50)]
    assert {life.kind for life in lives} == {"configmaps", "events.events.k8s.io"}


def test_no_request_reaches_objects_of_other_lives() -> None:
    for life in LIVES:
        for request in requests_of(life):
            assert _is_confined(life, request), (life.name, request)


def _is_confined(life: Life, request: Request) -> bool:
    """It names the run: in the path, in a label selector or as the name of a new object."""
    return "$run" in request.path or (request.method == "POST" and "$run" in json.dumps(request.body))
