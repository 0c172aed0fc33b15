"""Rules cover others if whoever has the former may do all that the latter allow, and no clever rule takes for ever."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.admission import rbac_coverage as module
from fairlead.admission.rbac_coverage import MAX_DESCRIBED, CoverageBudgetExceeded, HeldRules, format_list
from fairlead.authz.rbac import RoleRules, resource_patterns
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from tests.harness.growth import assert_linear


def rule(verbs: str, resources: str, groups: str = "g", names: str = "") -> Object:
    """Several values are written with spaces."""
    fields = {"verbs": verbs, "resources": resources, "apiGroups": groups, "resourceNames": names}
    return {field: text.split() for field, text in fields.items() if text}


def paths(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        ([rule("get list", "apps")], rule("get", "apps"), []),
        ([rule("get", "apps")], rule("get list", "apps"), ['{APIGroups:["g"], Resources:["apps"], Verbs:["list"]}']),
        ([rule("get", "apps")], rule("*", "apps"), ['{APIGroups:["g"], Resources:["apps"], Verbs:["*"]}']),
        ([rule("*", "apps")], rule("get escalate", "apps"), []),
        ([rule("*", "*", "*")], rule("get *", "apps */status *", "g *", "a"), []),
        ([rule("get", "apps")], rule("get", "apps", "h"), ['{APIGroups:["h"], Resources:["apps"], Verbs:["get"]}']),
        ([], rule("get list", "a b"), [f'{{APIGroups:["g"], Resources:["{r}"], Verbs:["get" "list"]}}' for r in "ab"]),
        # Each right for itself, wherever it comes from.
        ([rule("get", "apps"), rule("list", "apps")], rule("get list", "apps"), []),
        ([rule("get", "apps"), rule("get", "clusters")], rule("get", "apps clusters"), []),
        ([rule("get", "apps", "g"), rule("get", "apps", "h")], rule("get", "apps", "g h"), []),
        # Names.
        ([rule("get", "apps")], rule("get", "apps", names="a b"), []),
        ([rule("get", "apps", names="a"), rule("get", "apps", names="b")], rule("get", "apps", names="a b"), []),
        (
            [rule("get", "apps", names="a")],
            rule("get", "apps", names="a b"),
            ['{APIGroups:["g"], Resources:["apps"], ResourceNames:["b"], Verbs:["get"]}'],
        ),
        (
            [rule("get", "apps", names="a")],
            rule("get", "apps"),
            ['{APIGroups:["g"], Resources:["apps"], Verbs:["get"]}'],
        ),
        # Subresources.
        ([rule("get", "*/status")], rule("get", "apps/status */status"), []),
        (
            [rule("get", "apps")],
            rule("get", "apps/status"),
            ['{APIGroups:["g"], Resources:["apps/status"], Verbs:["get"]}'],
        ),
        ([rule("get", "apps")], rule("get", "*"), ['{APIGroups:["g"], Resources:["*"], Verbs:["get"]}']),
        # Paths.
        ([paths("get", "/x/*")], paths("get", "/x/y /x/* /x/y*"), []),
        ([paths("get", "*")], paths("get", "* /x"), []),
        ([paths("get", "/x")], paths("get", "/x/y"), ['{NonResourceURLs:["/x/y"], Verbs:["get"]}']),
        (
            [paths("get", "/x/*")],
            paths("get put", "/x /x/y"),
            [
                '{NonResourceURLs:["/x"], Verbs:["get"]}',
                '{NonResourceURLs:["/x"], Verbs:["put"]}',
                '{NonResourceURLs:["/x/y"], Verbs:["put"]}',
            ],
        ),
        ([rule("*", "*", "*")], paths("get", "/x"), ['{NonResourceURLs:["/x"], Verbs:["get"]}']),
        ([paths("*", "*")], rule("get", "apps"), ['{APIGroups:["g"], Resources:["apps"], Verbs:["get"]}']),
    ],
)
def test_what_is_missing(held: list[Object], wanted: Object, missing: list[str]) -> None:
    assert HeldRules(held).missing_permissions([wanted]) == missing


def test_what_is_missing_is_told_once_and_in_order() -> None:
    twice = [rule("get", "b a"), rule("get", "a"), paths("get", "/x")]
    assert HeldRules([]).missing_permissions(twice) == [
        '{APIGroups:["g"], Resources:["a"], Verbs:["get"]}',
        '{APIGroups:["g"], Resources:["b"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
    ]


def many(letter: str, count: int) -> str:
    return " ".join(f"{letter}{number}" for number in range(count))


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ([], [rule(many("v", 1_000), many("r", 1_000), many("g", 1_000), many("n", 1_000))]),
        ([], [paths(many("v", 1_000), many("/p", 1_000))]),
        (
            [rule("get", "apps", names=f"n{number}") for number in range(1_000)],
            [rule("get", "apps", names=many("n", 1_000))],
        ),
        ([rule("get", "apps")] * 1_000, [rule("list", "apps")] * 1_000),
        ([paths("get", f"/{number}/*") for number in range(1_000)], [paths("get", many("/p", 1_000))]),
    ],
)
def test_rules_that_multiply_without_end_are_not_compared(held: list[Object], wanted: list[Object]) -> None:
    with pytest.raises(CoverageBudgetExceeded):
        HeldRules(held).missing_permissions(wanted)


def test_long_lists_that_are_held_as_a_whole_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARISON_BUDGET", 10)
    wide = rule(many("v", 1_000), "apps", many("g", 1_000), many("n", 1_000))
    assert HeldRules([rule("*", "apps", "*")]).missing_permissions([wide]) == []
    assert HeldRules([wide]).missing_permissions([wide]) == []


def test_values_are_quoted_within_what_anybody_would_read() -> None:
    (line,) = HeldRules([]).missing_permissions([rule("get", "x" * 100_000)])
    assert len(line) < 2_000
    assert format_list(("a", 'b"')) == '["a" "b\\""]'
    assert len(format_list(("a",) * 100_000)) < 1_000


def some(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3)


RULES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "verbs": some("get", "list", "*"),
                "apiGroups": some("", "g", "*"),
                "resources": some("apps", "cm", "apps/status", "*/status", "*"),
            },
            optional={"resourceNames": some("a", "b")},
        ),
        st.fixed_dictionaries(
            {"verbs": some("get", "put", "*"), "nonResourceURLs": some("/x", "/x/*", "/x/y", "/x*", "*")}
        ),
    ),
    max_size=4,
)


def naively_covers(held: Object, verb: str, group: str, resource: str, name: str | None) -> bool:
    """Kubernetes' test of one right against one rule."""
    subresource = resource.partition("/")[2]
    return bool(
        {verb, "*"} & set(held["verbs"])
        and {group, "*"} & set(held.get("apiGroups", ()))
        and {resource, "*", *([f"*/{subresource}"] if subresource else [])} & set(held.get("resources", ()))
        and ("resourceNames" not in held or name in held["resourceNames"])
    )


def naively_covers_path(held: Object, verb: str, url: str) -> bool:
    owned = held.get("nonResourceURLs", ())
    return bool({verb, "*"} & set(held["verbs"])) and any(
        each == url or (each.endswith("*") and url.startswith(each.rstrip("*"))) for each in owned
    )


@given(RULES, RULES)
def test_it_agrees_with_a_plain_comparison(held: list[Object], wanted: list[Object]) -> None:
    expected = all(
        any(naively_covers(mine, *piece) for mine in held)
        for each in wanted
        if "resources" in each
        for verb, group, resource in product(each["verbs"], each["apiGroups"], each["resources"])
        for piece in [(verb, group, resource, name) for name in each.get("resourceNames", [None])]
    ) and all(
        any(naively_covers_path(mine, verb, url) for mine in held)
        for each in wanted
        if "nonResourceURLs" in each
        for verb, url in product(each["verbs"], each["nonResourceURLs"])
    )
    assert (HeldRules(held).missing_permissions(wanted) == []) == expected


@given(RULES, RULES)
def test_what_is_covered_allows_nothing_new(held: list[Object], wanted: list[Object]) -> None:
    if HeldRules(held).missing_permissions(wanted):
        return
    mine, others = RoleRules(held), RoleRules(wanted)
    requests = [
        RequestInfo(verb, "", "m", group, "v1", resource, subresource, "", name)
        for verb, group, resource, subresource, name in product(
            ("get", "use"), ("", "h"), ("apps", "x"), ("", "status"), ("", "a", "c")
        )
    ]
    requests += [
        RequestInfo(verb, url, "m") for verb, url in product(("get", "put"), ("/x", "/x/y", "/x/z", "/xx", "/"))
    ]
    for target in requests:
        spelled = resource_patterns(target)
        assert mine.allows(target, spelled) or not others.allows(target, spelled), target


# --- many rules ---


def test_a_rule_of_many_names_is_compared_with_a_few_others_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held rule has all but one of the names that are wanted. Taken apart, all of them are held."""
    names = [f"n{index}" for index in range(100)]
    every = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "services"]}
    held = [{**every, "resourceNames": names[:index] + names[index + 1 :]} for index in range(100)]
    compared: list[Object] = []

    def covers(self: object, rule: Object) -> bool:
        compared.append(rule)
        return False

    monkeypatch.setattr(module._HeldRule, "covers_rule", covers)
    monkeypatch.setattr(module, "MAX_LOOKUPS", 1_000)
    assert HeldRules(held).missing_permissions([{**every, "resourceNames": names}]) == []
    assert len(compared) == 1 + 1_000 // (len(names) + 3)


def test_a_path_is_looked_up_however_many_beginnings_are_held() -> None:
    def make(size: int) -> Callable[[], object]:
        held = [{"verbs": ["get"], "nonResourceURLs": [f"/{index}/*" for index in range(size)]}]
        wanted = [{"verbs": ["get"], "nonResourceURLs": [f"/{index}/x" for index in range(size)]}]
        assert HeldRules(held).missing_permissions(wanted) == []
        return lambda: HeldRules(held).missing_permissions(wanted)

    assert_linear(make)


def test_of_very_many_missing_rights_the_first_are_described() -> None:
    wanted = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{index}" for index in range(5_000)]}]
    assert len(HeldRules([]).missing_permissions(wanted)) == MAX_DESCRIBED
