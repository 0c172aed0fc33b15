"""The kind AppInstance: defaults, and rules about the object alone."""

from typing import Any

import pytest

from fairlead.core.objects import Object, get_path
from tests.harness.kind_examples import apply_defaults, build_example, problem_reasons


def build_instance(name: str = "shop", **spec: Any) -> Object:
    instance = build_example("AppInstance")
    instance["metadata"]["name"] = name
    instance["spec"].update(spec)
    return instance


@pytest.mark.parametrize(
    ("name", "expected"), [("shop", "shop"), ("my.shop", "my-shop"), ("n" * 60, f"{'n' * 44}-4f9a6a5f")]
)
def test_the_release_is_named_after_the_object(name: str, expected: str) -> None:
    found = get_path(apply_defaults(build_instance(name, releaseName="")), "spec.releaseName")
    assert found == expected or (len(found) == 53 and found.startswith(expected.partition("-")[0]))


def test_an_update_keeps_what_the_server_has_chosen() -> None:
    target = {"cluster": {"name": "c", "namespace": "tools"}}
    old = build_instance(target=target, releaseName="first")
    new = apply_defaults(build_instance(target={"cluster": {"name": "c"}}, releaseName=""), old)
    assert (new["spec"]["target"], new["spec"]["releaseName"]) == (target, "first")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"appRef": {}}, "spec.appRef.name"),
        ({"appRef": {"name": "UPPER"}}, "spec.appRef.name"),
        ({"appRef": {"name": "a", "version": "1.2"}}, "spec.appRef.version"),
        ({"target": {}}, "spec.target"),
        (
            {"target": {"spaceInstance": {"name": "a"}, "cluster": {"name": "b", "namespace": "c"}}},
            "spec.target.spaceInstance",
        ),
        ({"target": {"spaceInstance": {"name": ""}, "cluster": {}}}, "spec.target.spaceInstance.name"),
        ({"target": {"cluster": {"name": "b"}}}, "spec.target.cluster.namespace"),
        ({"target": {"cluster": {"name": "b", "namespace": "Up/../x"}}}, "spec.target.cluster.namespace"),
        ({"releaseName": "Not valid"}, "spec.releaseName"),
        ({"releaseName": "n" * 54}, "spec.releaseName"),
        ({"owner": {"user": "a", "team": "b"}}, "spec.owner.team"),
    ],
)
def test_invalid_objects_are_rejected(spec: Object, path: str) -> None:
    assert path in [each for each, _ in problem_reasons(build_instance(**spec))]
