"""Resolving what an AppInstance deploys."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.app_resolution import ResolvedApp, resolve_app
from fairlead.domain.template_resolution import ResolutionError

PARAMETERS = [{"variable": "size", "defaultValue": "1"}]
VALUES = "size: {{ parameters.size }}\n"


def resolve(app: Object | None, parameters: str = "", **ref: str) -> ResolvedApp:
    found = {"metadata": {"name": "web"}, "spec": app} if app is not None else None
    return resolve_app({"spec": {"appRef": {"name": "web", **ref}, "parameters": parameters}}, found)


def build_version(version: str, **fields: Any) -> Object:
    return {"version": version, "chart": {"name": version}, **fields}


def test_parameters_are_inserted_into_the_values() -> None:
    app = {"config": {"chart": {"name": "c"}, "values": VALUES}, "parameters": PARAMETERS}
    assert resolve(app).config == {"chart": {"name": "c"}, "values": "size: 1\n"}
    assert resolve(app, "size: 2\n").config["values"] == "size: 2\n"


def test_a_value_cannot_add_fields() -> None:
    app = {
        "config": {"chart": {"name": "c"}, "values": VALUES},
        "parameters": [{"variable": "size", "type": "multiline"}],
    }
    assert "\nadmin:" not in resolve(app, 'size: "1\\nadmin: true"\n').config["values"]


def test_a_version_has_its_own_defaults() -> None:
    versions = [build_version("1.0.0", values=VALUES, parameters="size: 7\n"), build_version("1.1.0", values=VALUES)]
    app = {"versions": versions, "parameters": PARAMETERS}
    assert resolve(app, version="1.0.0").config["values"] == "size: 7\n"
    newest = resolve(app, version="1.x.x")
    assert (newest.version, newest.newest_version, newest.config["values"]) == ("1.1.0", "1.1.0", "size: 1\n")


def test_deprecated_fields_are_understood() -> None:
    helm = {"name": "c", "repoUrl": "https://r", "version": "1", "values": "a: 1\n", "insecure": True}
    chart = {"name": "c", "version": "1", "repoURL": "https://r", "insecureSkipTlsVerify": True}
    assert resolve({"helm": helm}).config == {"chart": chart, "values": "a: 1\n"}
    assert resolve({"manifests": "kind: Pod\n"}).config == {"manifests": "kind: Pod\n"}


@pytest.mark.parametrize(
    ("app", "ref", "reason", "message"),
    [
        (None, {}, "AppNotFound", 'no app "web"'),
        ({"config": {}}, {}, "UnsupportedApp", "deploys nothing"),
        ({"versions": [build_version("1.0.0")]}, {}, "VersionNotFound", "set spec.appRef.version to x.x.x or 1.0.0"),
        (
            {"versions": [build_version("1.0.0")]},
            {"version": "2.x.x"},
            "VersionNotFound",
            'app "web" has no version 2.x.x',
        ),
        (
            {"config": {"chart": {"name": "c"}}, "parameters": [{"variable": "size", "required": True}]},
            {},
            "ErrorSyncingParameters",
            "size",
        ),
        (
            {"config": {"manifests": "{{ parameters.nope }}"}},
            {},
            "ErrorRenderingTemplate",
            "the app cannot be rendered",
        ),
    ],
)
def test_what_cannot_be_deployed_is_explained(
    app: Object | None, ref: dict[str, str], reason: str, message: str
) -> None:
    with pytest.raises(ResolutionError, match=message) as error:
        resolve(app, **ref)
    assert error.value.reason == reason
