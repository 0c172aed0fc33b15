"""RBAC coverage: which permissions of some rules are not covered by others, within a bounded time."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.admission import escalation
from fairlead.admission.escalation import MAX_DESCRIBED, CoverageBudgetExceeded, HeldRules, format_list
from fairlead.authz.rbac import RoleRules, resource_patterns
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from tests.harness.growth import assert_linear
from tests.harness.properties import at_least


def resource_rule(verbs: str, resources: str, groups: str = "g", names: str = "") -> Object:
    """Each argument is a list of values separated by spaces."""
    fields = {"verbs": verbs, "resources": resources, "apiGroups": groups, "resourceNames": names}
    return {field: text.split() for field, text in fields.items() if text}


def path_rule(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


@pytest.mark.parametrize(
    ("held", "requested", "missing"),
    [
        ([resource_rule("get list", "apps")], resource_rule("get", "apps"), []),
        (
            [resource_rule("get", "apps")],
            resource_rule("get list", "apps"),
            ['{APIGroups:["g"], Resources:["apps"], Verbs:["list"]}'],
        ),
        (
            [resource_rule("get", "apps")],
            resource_rule("*", "apps"),
            ['{APIGroups:["g"], Resources:["apps"], Verbs:["*"]}'],
        ),
        ([resource_rule("*", "apps")], resource_rule("get escalate", "apps"), []),
        ([resource_rule("*", "*", "*")], resource_rule("get *", "apps */status *", "g *", "a"), []),
        (
            [resource_rule("get", "apps")],
            resource_rule("get", "apps", "h"),
            ['{APIGroups:["h"], Resources:["apps"], Verbs:["get"]}'],
        ),
        (
            [],
            resource_rule("get list", "a b"),
            [f'{{APIGroups:["g"], Resources:["{r}"], Verbs:["get" "list"]}}' for r in "ab"],
        ),
        # Each permission by itself, whichever rule grants it.
        ([resource_rule("get", "apps"), resource_rule("list", "apps")], resource_rule("get list", "apps"), []),
        ([resource_rule("get", "apps"), resource_rule("get", "clusters")], resource_rule("get", "apps clusters"), []),
        (
            [resource_rule("get", "apps", "g"), resource_rule("get", "apps", "h")],
            resource_rule("get", "apps", "g h"),
            [],
        ),
        # Names.
        ([resource_rule("get", "apps")], resource_rule("get", "apps", names="a b"), []),
        (
            [resource_rule("get", "apps", names="a"), resource_rule("get", "apps", names="b")],
            resource_rule("get", "apps", names="a b"),
            [],
        ),
        (
            [resource_rule("get", "apps", names="a")],
            resource_rule("get", "apps", names="a b"),
            ['{APIGroups:["g"], Resources:["apps"], ResourceNames:["b"], Verbs:["get"]}'],
        ),
        (
            [resource_rule("get", "apps", names="a")],
            resource_rule("get", "apps"),
            ['{APIGroups:["g"], Resources:["apps"], Verbs:["get"]}'],
        ),
        # Subresources.
        ([resource_rule("get", "*/status")], resource_rule("get", "apps/status */status"), []),
        (
            [resource_rule("get", "apps")],
            resource_rule("get", "apps/status"),
            ['{APIGroups:["g"], Resources:["apps/status"], Verbs:["get"]}'],
        ),
        (
            [resource_rule("get", "apps")],
            resource_rule("get", "*"),
            ['{APIGroups:["g"], Resources:["*"], Verbs:["get"]}'],
        ),
        # Paths.
        ([path_rule("get", "/x/*")], path_rule("get", "/x/y /x/* /x/y*"), []),
        ([path_rule("get", "*")], path_rule("get", "* /x"), []),
        ([path_rule("get", "/x")], path_rule("get", "/x/y"), ['{NonResourceURLs:["/x/y"], Verbs:["get"]}']),
        (
            [path_rule("get", "/x/*")],
            path_rule("get put", "/x /x/y"),
            [
                '{NonResourceURLs:["/x"], Verbs:["get"]}',
                '{NonResourceURLs:["/x"], Verbs:["put"]}',
                '{NonResourceURLs:["/x/y"], Verbs:["put"]}',
            ],
        ),
        ([resource_rule("*", "*", "*")], path_rule("get", "/x"), ['{NonResourceURLs:["/x"], Verbs:["get"]}']),
        ([path_rule("*", "*")], resource_rule("get", "apps"), ['{APIGroups:["g"], Resources:["apps"], Verbs:["get"]}']),
    ],
)
def test_the_missing_permissions_are_listed(held: list[Object], requested: Object, missing: list[str]) -> None:
    assert HeldRules(held).missing_permissions([requested]) == missing


def test_missing_permissions_are_listed_once_and_in_order() -> None:
    requested = [resource_rule("get", "b a"), resource_rule("get", "a"), path_rule("get", "/x")]
    assert HeldRules([]).missing_permissions(requested) == [
        '{APIGroups:["g"], Resources:["a"], Verbs:["get"]}',
        '{APIGroups:["g"], Resources:["b"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
    ]


def numbered_words(letter: str, count: int) -> str:
    return " ".join(f"{letter}{number}" for number in range(count))


@pytest.mark.parametrize(
    ("held", "requested"),
    [
        (
            [],
            [
                resource_rule(
                    numbered_words("v", 1_000),
                    numbered_words("r", 1_000),
                    numbered_words("g", 1_000),
                    numbered_words("n", 1_000),
                )
            ],
        ),
        ([], [path_rule(numbered_words("v", 1_000), numbered_words("/p", 1_000))]),
        (
            [resource_rule("get", "apps", names=f"n{number}") for number in range(1_000)],
            [resource_rule("get", "apps", names=numbered_words("n", 1_000))],
        ),
        ([resource_rule("get", "apps")] * 1_000, [resource_rule("list", "apps")] * 1_000),
        (
            [path_rule("get", f"/{number}/*") for number in range(1_000)],
            [path_rule("get", numbered_words("/p", 1_000))],
        ),
    ],
)
def test_rules_with_too_many_combinations_exceed_the_budget(held: list[Object], requested: list[Object]) -> None:
    with pytest.raises(CoverageBudgetExceeded):
        HeldRules(held).missing_permissions(requested)


def test_long_lists_covered_by_one_rule_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escalation, "COMPARISON_BUDGET", 10)
    large_rule = resource_rule(
        numbered_words("v", 1_000), "apps", numbered_words("g", 1_000), numbered_words("n", 1_000)
    )
    assert HeldRules([resource_rule("*", "apps", "*")]).missing_permissions([large_rule]) == []
    assert HeldRules([large_rule]).missing_permissions([large_rule]) == []


def test_long_values_are_shortened_in_descriptions() -> None:
    (line,) = HeldRules([]).missing_permissions([resource_rule("get", "x" * 100_000)])
    assert len(line) < 2_000
    assert format_list(("a", 'b"')) == '["a" "b\\""]'
    assert len(format_list(("a",) * 100_000)) < 1_000


def sublists_of(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3)


RULES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "verbs": sublists_of("get", "list", "*"),
                "apiGroups": sublists_of("", "g", "*"),
                "resources": sublists_of("apps", "cm", "apps/status", "*/status", "*"),
            },
            optional={"resourceNames": sublists_of("a", "b")},
        ),
        st.fixed_dictionaries(
            {"verbs": sublists_of("get", "put", "*"), "nonResourceURLs": sublists_of("/x", "/x/*", "/x/y", "/x*", "*")}
        ),
    ),
    max_size=4,
)


def simple_covers(held: Object, verb: str, group: str, resource: str, name: str | None) -> bool:
    """Kubernetes' check of one permission against one rule."""
    subresource = resource.partition("/")[2]
    return bool(
        {verb, "*"} & set(held["verbs"])
        and {group, "*"} & set(held.get("apiGroups", ()))
        and {resource, "*", *([f"*/{subresource}"] if subresource else [])} & set(held.get("resources", ()))
        and ("resourceNames" not in held or name in held["resourceNames"])
    )


def simple_covers_path(held: Object, verb: str, url: str) -> bool:
    patterns = held.get("nonResourceURLs", ())
    return bool({verb, "*"} & set(held["verbs"])) and any(
        each == url or (each.endswith("*") and url.startswith(each.rstrip("*"))) for each in patterns
    )


@settings(max_examples=at_least(100))
@given(RULES, RULES)
def test_coverage_agrees_with_a_simple_comparison(held: list[Object], requested: list[Object]) -> None:
    expected = all(
        any(simple_covers(held_rule, *permission) for held_rule in held)
        for each in requested
        if "resources" in each
        for verb, group, resource in product(each["verbs"], each["apiGroups"], each["resources"])
        for permission in [(verb, group, resource, name) for name in each.get("resourceNames", [None])]
    ) and all(
        any(simple_covers_path(held_rule, verb, url) for held_rule in held)
        for each in requested
        if "nonResourceURLs" in each
        for verb, url in product(each["verbs"], each["nonResourceURLs"])
    )
    assert (HeldRules(held).missing_permissions(requested) == []) == expected


@settings(max_examples=at_least(100))
@given(RULES, RULES)
def test_covered_rules_allow_no_further_request(held: list[Object], requested: list[Object]) -> None:
    if HeldRules(held).missing_permissions(requested):
        return
    held_rules, requested_rules = RoleRules(held), RoleRules(requested)
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
        patterns = resource_patterns(target)
        assert held_rules.allows(target, patterns) or not requested_rules.allows(target, patterns), target


# --- many rules ---


def test_a_rule_with_many_names_is_compared_as_a_whole_with_few_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held rule has all but one of the requested names. Together they cover all of them."""
    names = [f"n{index}" for index in range(100)]
    base = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "services"]}
    held = [{**base, "resourceNames": names[:index] + names[index + 1 :]} for index in range(100)]
    compared: list[Object] = []

    def record_comparison(self: object, rule: Object) -> bool:
        compared.append(rule)
        return False

    monkeypatch.setattr(escalation._HeldRule, "covers_rule", record_comparison)
    monkeypatch.setattr(escalation, "MAX_LOOKUPS", 1_000)
    assert HeldRules(held).missing_permissions([{**base, "resourceNames": names}]) == []
    assert len(compared) == 1 + 1_000 // (len(names) + 3)


def test_looking_up_paths_takes_linear_time() -> None:
    def build_comparison(size: int) -> Callable[[], object]:
        held = [{"verbs": ["get"], "nonResourceURLs": [f"/{index}/*" for index in range(size)]}]
        requested = [{"verbs": ["get"], "nonResourceURLs": [f"/{index}/x" for index in range(size)]}]
        assert HeldRules(held).missing_permissions(requested) == []
        return lambda: HeldRules(held).missing_permissions(requested)

    assert_linear(build_comparison)


def test_only_the_first_of_many_missing_permissions_are_described() -> None:
    requested = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{index}" for index in range(5_000)]}]
    assert len(HeldRules([]).missing_permissions(requested)) == MAX_DESCRIBED
