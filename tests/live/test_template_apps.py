"""No user has an App deployed by a space or virtual cluster of another user, or by a template, without being allowed to
use it."""

from typing import Any

import pytest

from tests.live.test_instance_owners import APPLY, Cast, cast, expect_forbidden, installation
from tests.live.workspace_setup import M, create_object

__all__ = ["cast", "installation"]
SPACES = f"{M}/namespaces/service-p-web/spaceinstances"
CLUSTERS = f"{M}/namespaces/service-p-web/virtualclusterinstances"
WORDS = 'User "mallory" may not use the app "private"'
PRIVATE = {"apps": [{"name": "private"}]}
PARAMETER = {"apps": [{"name": "{{ parameters.app }}"}]}


def create_app(cast: Cast) -> None:
    access = [{"users": ["dave"], "verbs": ["get", "use"]}]
    create_object(cast.admin, f"{M}/apps", "App", "private", config={"manifests": "a: 1\n"}, access=access)


def create_template(cast: Cast, name: str = "t", **spec: Any) -> str:
    entry = [{"users": ["mallory"], "verbs": ["get", "update", "patch"]}]
    create_object(cast.admin, f"{M}/spacetemplates", "SpaceTemplate", name, access=entry, **spec)
    return f"{M}/spacetemplates/{name}"


@pytest.mark.parametrize(
    ("path", "kind", "template"),
    [
        (SPACES, "SpaceInstance", PRIVATE),
        (CLUSTERS, "VirtualClusterInstance", PRIVATE),
        (CLUSTERS, "VirtualClusterInstance", {"spaceTemplate": PRIVATE}),
    ],
)
def test_others_cannot_add_an_app_that_only_the_owner_may_use(
    cast: Cast, path: str, kind: str, template: dict[str, Any]
) -> None:
    create_app(cast)
    place = {"clusterRef": {"cluster": "c"}}
    assert cast.post("dave", kind, "one", **place).status_code == 201
    expect_forbidden(cast.patch("mallory", f"{path}/one", spec={"template": template}), WORDS)
    applied = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": "one"}}
    body = {**applied, "spec": {"template": template}}
    mallory = cast.clients["mallory"]
    expect_forbidden(mallory.patch(f"{path}/one?fieldManager=x&force=true", json=body, headers=APPLY), WORDS)
    expect_forbidden(cast.post("mallory", kind, "own", template=template, **place), WORDS)
    by_parameter = {"template": PARAMETER, "parameters": "app: private\n"}
    expect_forbidden(cast.patch("mallory", f"{path}/one", spec=by_parameter), WORDS)
    # The owner may. Others then change what else there is, but not how the app is deployed.
    assert cast.patch("dave", f"{path}/one", spec={"template": template}).status_code == 200
    assert cast.patch("mallory", f"{path}/one", spec={"displayName": "One"}).status_code == 200
    entry = {"apps": [{"name": "private", "parameters": "a: 2\n"}]}
    changed = entry if template == PRIVATE else {"spaceTemplate": entry}
    expect_forbidden(cast.patch("mallory", f"{path}/one", spec={"template": changed}), WORDS)


def test_the_author_of_a_template_needs_to_be_allowed_to_use_its_apps(cast: Cast) -> None:
    create_app(cast)
    path = create_template(cast, template={})
    expect_forbidden(cast.patch("mallory", path, spec={"template": PRIVATE}), WORDS)
    version = {"version": "1.0.0", "template": PRIVATE}
    expect_forbidden(cast.patch("mallory", path, spec={"versions": [version]}), WORDS)
    for parameter in ({"defaultValue": "private"}, {"options": ["private"]}):
        spec = {"template": PARAMETER, "parameters": [{"variable": "app", **parameter}]}
        expect_forbidden(cast.patch("mallory", path, spec=spec), WORDS)
    partial = {"apps": [{"name": "priv{{ parameters.app }}"}]}
    spec = {"template": partial, "parameters": [{"variable": "app", "defaultValue": "ate"}]}
    expect_forbidden(cast.patch("mallory", path, spec=spec), "text around a parameter")
    for placeholder in ("{{ name }}", "{{ owner }}"):
        named = {"template": {"apps": [{"name": placeholder}]}}
        expect_forbidden(cast.patch("mallory", path, spec=named), "another placeholder")
        place = {"clusterRef": {"cluster": "c"}}
        expect_forbidden(cast.post("mallory", "SpaceInstance", "private", **named, **place), "another placeholder")
    spec = {"template": PARAMETER, "parameters": [{"variable": "app"}]}
    assert cast.patch("mallory", path, spec=spec).status_code == 200
    chosen = {"templateRef": {"name": "t"}, "clusterRef": {"cluster": "c"}, "parameters": "app: private\n"}
    expect_forbidden(cast.post("mallory", "SpaceInstance", "own", **chosen), WORDS)
    assert cast.post("dave", "SpaceInstance", "one", **chosen).status_code == 201


def test_apps_of_an_administrators_template_are_for_all_who_use_the_template(cast: Cast) -> None:
    create_app(cast)
    create_template(cast, template=PRIVATE)
    space = {"templateRef": {"name": "t"}, "clusterRef": {"cluster": "c"}}
    assert cast.post("mallory", "SpaceInstance", "own", **space).status_code == 201
