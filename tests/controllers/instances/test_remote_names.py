"""Names in connected clusters: short enough, valid, and no two alike."""

import pytest

from fairlead.controllers.helm.chart import Chart, is_allowed_repository, parse_chart, release_name
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.controllers.instances.remote_names import (
    SPACE_LABEL,
    VIRTUAL_CLUSTER_LABEL,
    default_namespace,
    namespace_from_pattern,
    ownership_labels,
    truncate_with_hash,
)
from fairlead.registry.names import dns_label_errors, label_value_errors


def test_short_names_stay_and_long_ones_stay_apart() -> None:
    assert default_namespace(SPACE_LABEL, "team", "one") == "team-one"
    long = [default_namespace(SPACE_LABEL, "p" * 50, "s" * 40 + end) for end in ("a", "b")]
    assert len({*long}) == 2
    assert all(not [*dns_label_errors(each)] for each in long)


def test_names_with_dots_become_names_of_namespaces_that_stay_apart() -> None:
    made = [default_namespace(SPACE_LABEL, "p", name) for name in ("a.b", "a-b", f"{'a.' * 60}b")]
    assert len({*made}) == 3
    assert all(not [*dns_label_errors(each)] for each in made)


def test_namespaces_of_different_pairs_of_names_never_collide() -> None:
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b.c"), ("a.b", "c"), ("a", "v-b"), ("a-v", "b"), ("a", "b"), ("a", "v")]
    made = [default_namespace(kind, *pair) for kind in (SPACE_LABEL, VIRTUAL_CLUSTER_LABEL) for pair in pairs]
    # The name of a namespace of somebody else, taken for one's own.
    made.append(default_namespace(SPACE_LABEL, "a", default_namespace(SPACE_LABEL, "a", "b-c").removeprefix("a-")))
    assert len({*made}) == len(made)
    assert all(not [*dns_label_errors(each)] for each in made)


@pytest.mark.parametrize(
    ("repo", "listed"),
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
def test_a_repository_is_listed_by_whole_steps_of_its_address(repo: str, listed: bool) -> None:
    assert is_allowed_repository(repo, ("https://charts.example/team",)) is listed
    assert not is_allowed_repository(repo, ())


def test_a_pattern_is_filled_in() -> None:
    assert namespace_from_pattern("x-{{project}}-{{ name }}", {"project": "p", "name": "n"}) == "x-p-n"
    with pytest.raises(InstanceError, match="namespacePattern"):
        namespace_from_pattern("x-{{ user }}", {"project": "p", "name": "n"})


def test_marks_are_labels_whatever_the_names() -> None:
    assert all(
        not [*label_value_errors(each)] for each in ownership_labels("service.sh/space", "p", "n" * 250, "uid").values()
    )


def test_releases_have_names_that_helm_takes() -> None:
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
        {"name": "vc", "repo": "https://charts.example", "username": "u" * 300},
        {"name": "vc", "repo": "https://charts.example", "username": "a\0b"},
        {"name": "vc", "repo": "https://charts.example", "password": "without a user"},
    ],
)
def test_a_chart_is_neither_an_option_nor_a_file(chart: dict[str, str]) -> None:
    with pytest.raises(InstanceError, match="fix the template"):
        parse_chart({"helmRelease": {"chart": chart}})


def test_a_chart_is_read_from_the_template() -> None:
    asked = {"name": "vc", "repo": "oci://registry.example:5000/charts", "version": "1.2.3", "password": "p"}
    chart = parse_chart({"helmRelease": {"chart": asked}})
    assert chart == Chart("vc", "oci://registry.example:5000/charts", "1.2.3", "", "p")
    assert (chart.address, chart.is_oci) == (("registry.example", 5000), True)
    assert "password" not in repr(chart)
    assert parse_chart({}) is None
