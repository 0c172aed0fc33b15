"""Names in connected clusters (`remote_namespace`) are short, valid and unique."""

import pytest

from fairlead.controllers.helm.chart import Chart, is_allowed_repository, parse_chart
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.controllers.instances.remote_namespace import (
    SPACE_LABEL,
    VIRTUAL_CLUSTER_LABEL,
    default_namespace,
    namespace_from_pattern,
    ownership_labels,
)
from fairlead.core.truncation import truncate_with_hash
from fairlead.domain.release_names import release_name
from fairlead.registry.names import dns_label_errors, label_value_errors


def test_short_names_are_kept_and_long_ones_are_unique() -> None:
    assert default_namespace(SPACE_LABEL, "team", "one") == "team-one"
    long_names = [default_namespace(SPACE_LABEL, "p" * 50, "s" * 40 + end) for end in ("a", "b")]
    assert len({*long_names}) == 2
    assert all(not [*dns_label_errors(name)] for name in long_names)


def test_names_with_dots_become_unique_names_of_namespaces() -> None:
    namespaces = [default_namespace(SPACE_LABEL, "p", name) for name in ("a.b", "a-b", f"{'a.' * 60}b")]
    assert len({*namespaces}) == 3
    assert all(not [*dns_label_errors(name)] for name in namespaces)


def test_namespaces_of_different_pairs_of_names_never_collide() -> None:
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b.c"), ("a.b", "c"), ("a", "v-b"), ("a-v", "b"), ("a", "b"), ("a", "v")]
    namespaces = [default_namespace(kind, *pair) for kind in (SPACE_LABEL, VIRTUAL_CLUSTER_LABEL) for pair in pairs]
    # A space whose name is derived from the namespace of another space.
    namespaces.append(
        default_namespace(SPACE_LABEL, "a", default_namespace(SPACE_LABEL, "a", "b-c").removeprefix("a-"))
    )
    assert len({*namespaces}) == len(namespaces)
    assert all(not [*dns_label_errors(name)] for name in namespaces)


@pytest.mark.parametrize(
    ("repo", "is_listed"),
    [
        ("https://charts.example/team", True),
        ("https://charts.example/team/", True),
        ("https://charts.example:443/team/below", True),
        ("https://charts.example/teammates", False),
        ("https://charts.example/team/../other", False),
        ("https://charts.example/team/%2e%2e/other", False),
        ("https://charts.example.evil.example/team", False),
        ("https://charts.example:8443/team", False),
        ("oci://charts.example/team", False),
        ("https://charts.example", False),
    ],
)
def test_a_repository_is_matched_by_whole_path_segments(repo: str, is_listed: bool) -> None:
    assert is_allowed_repository(repo, ("https://charts.example/team",)) is is_listed
    assert not is_allowed_repository(repo, ())


def test_placeholders_of_a_pattern_are_replaced() -> None:
    assert namespace_from_pattern("x-{{project}}-{{ name }}", {"project": "p", "name": "n"}) == "x-p-n"
    with pytest.raises(InstanceError, match="namespacePattern"):
        namespace_from_pattern("x-{{ user }}", {"project": "p", "name": "n"})


def test_ownership_labels_are_valid_for_any_name() -> None:
    assert all(
        not [*label_value_errors(value)]
        for value in ownership_labels("service.sh/space", "p", "n" * 250, "uid").values()
    )


def test_names_of_releases_are_valid_for_helm() -> None:
    assert release_name("one") == "one"
    assert len(release_name("n" * 200)) == 53
    assert truncate_with_hash("n" * 54, 53) != "n" * 53


@pytest.mark.parametrize(
    "chart",
    [
        {"name": "--post-renderer", "repo": "https://charts.example"},
        {"name": "../../etc", "repo": "https://charts.example"},
        {"name": "/chart", "repo": "https://charts.example"},
        {"name": "vc", "repo": ""},
        {"name": "vc", "repo": "http://charts.example"},
        {"name": "vc", "repo": "file:///etc"},
        {"name": "vc", "repo": "https://user:pass@charts.example"},
        {"name": "vc", "repo": "https://charts.example:99999"},
        {"name": "vc", "repo": "https://charts.example", "version": "--debug"},
        {"name": "vc", "repo": f"https://charts.example/{'e' * 3000}"},
        {"name": "vc", "repo": "https://charts.example", "version": "1" * 300},
        {"name": "vc", "repo": "https://charts.example", "version": "latest"},
        {"name": "vc", "repo": "https://charts.example", "version": ">= = 1"},
        {"name": "vc", "repo": "https://charts.example", "username": "u" * 300},
        {"name": "vc", "repo": "https://charts.example", "username": "a\0b"},
        {"name": "vc", "repo": "https://charts.example", "password": "without a user"},
    ],
)
def test_a_chart_that_is_an_option_or_a_file_is_rejected(chart: dict[str, str]) -> None:
    with pytest.raises(InstanceError, match="fix the template"):
        parse_chart({"helmRelease": {"chart": chart}})


def test_a_chart_is_parsed_from_the_template() -> None:
    definition = {"name": "vc", "repo": "oci://registry.example:5000/charts", "version": "1.2.3", "password": "p"}
    chart = parse_chart({"helmRelease": {"chart": definition}})
    assert chart == Chart("vc", "oci://registry.example:5000/charts", "1.2.3", "", "p")
    assert chart.is_oci
    assert "'p'" not in repr(chart)
    assert parse_chart({}) is None
