"""A planted difference is found, and shrunk to the shortest life that shows it."""

import json
from dataclasses import replace

from tests.conformance.generated.lives import make_life
from tests.conformance.generated.shrinking import shrink
from tests.conformance.generated.steps import Life, Race, Request, Watch, requests_of


def build_life(*steps: Request | Watch | Race) -> Life:
    return Life("planted-0", "apps", "/apps", {"metadata": {}}, steps)


def has_planted_field(life: Life) -> bool:
    """As if the server under test answered wrongly to a PUT with this field, once the object exists."""
    created = False
    for request in requests_of(life):
        if request.method == "POST":
            created = True
        if created and request.method == "PUT" and "planted" in json.dumps(request.body):
            return True
    return False


def test_a_planted_difference_is_shrunk_to_the_two_requests_and_the_field() -> None:
    life = make_life("shrinking", 3, ["configmaps"])
    noisy = {"metadata": {"name": "a-$run", "labels": {"a": "b"}}, "data": {"k": "v", "planted": "x"}, "more": [1, 2]}
    planted = Request("PUT", "/configmaps/a-$run?dryRun=All&pretty=1", noisy, {"Accept": "text/html"})
    life = replace(life, steps=(*life.steps[:4], planted, *life.steps[4:]))
    shortest = shrink(life, has_planted_field, limit=2000)
    create, update = shortest.steps
    assert isinstance(create, Request) and (create.method, create.body) == ("POST", {})
    assert update == Request("PUT", "/configmaps/a-$run", {"data": {"planted": "x"}})


def test_requests_inside_of_watches_and_races_are_shrunk_as_well() -> None:
    create, planted = Request("POST", "/apps", {}), Request("PUT", "/apps/a", {"planted": 1, "b": 2})
    watch = Watch("/apps?watch=1", (Request("GET", "/apps/a"), planted))
    shortest = shrink(build_life(create, watch), has_planted_field)
    assert shortest.steps == (create, Watch("/apps?watch=1", (Request("PUT", "/apps/a", {"planted": 1}),)))
    raced = shrink(build_life(create, Race(Request("GET", "/apps/a"), planted)), has_planted_field)
    assert raced.steps == (create, Request("PUT", "/apps/a", {"planted": 1}))


def test_the_number_of_plays_is_limited() -> None:
    plays = []

    def differs(life: Life) -> bool:
        plays.append(life)
        return True

    shrink(make_life("shrinking", 1), differs, limit=7)
    assert len(plays) == 7


def test_a_life_that_cannot_be_shrunk_stays() -> None:
    life = build_life(Request("GET", "/apps"))
    assert shrink(life, lambda _: False) is life
