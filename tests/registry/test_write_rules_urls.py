"""registry/write_rules.py: URLs in objects contain no credentials, and icons are images."""

from typing import Any

import pytest

from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.core.validators import check_icon, check_no_credentials
from fairlead.kinds import KINDS
from fairlead.registry.kind import Change, Kind
from fairlead.registry.write_options import WriteOptions
from fairlead.registry.write_rules import UrlFields, find_url_fields, url_problems
from tests.harness.registry import ADA, RegistryFixture

URLS_WITH_CREDENTIALS = [
    "https://user:canary@charts.example.com",
    "https://canary@charts.example.com/path",
    "HTTPS://user:canary@charts.example.com",
    "oci://user:canary@registry.example.com/charts",
    "//user:canary@charts.example.com",
    "user:canary@charts.example.com/path",
    "https:user:canary@charts.example.com",
    "https:/user:canary@charts.example.com",
    "https:\\\\user:canary@charts.example.com",
    "https://user\t:canary@charts.example.com",
    "https://good.example.com\\canary@evil.example.com@",
    " https://user:canary@charts.example.com",
    "https://{{ parameters.user }}:canary@charts.example.com",
    "ssh://git@example.com/canary",
]
URLS_WITHOUT_CREDENTIALS = [
    "",
    "https://charts.example.com",
    "https://charts.example.com:8443/a@b/c?d=e@f#g@h",
    "oci://registry.example.com/charts",
    "https://{{ parameters.host }}/charts",
    "charts",
]
INVALID_ICONS = [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "java\tscript:alert(1)",
    "\x01javascript:alert(1)",
    " javascript:alert(1)",
    "java\u200bscript:alert(1)",
    "vbscript:x",
    "http://example.com/icon.png",
    "file:///etc/passwd",
    "blob:https://example.com/x",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD4=",
    "data:image/svg+xml,<svg onload='alert(1)'/>",
    "data:image/SVG+xml;base64,PHN2Zy8+",
    "data: image/svg+xml,x",
    "data:image/xml,x",
    "data:image/x-svg,x",
    "data:image/,x",
    "data:,x",
    "data:image/png",
    "example.com:8080/icon.png",
    "https://user:canary@example.com/icon.png",
]
VALID_ICONS = [
    "",
    "i",
    "icon.png",
    "/assets/icon.svg",
    "//cdn.example.com/icon.png",
    "https://example.com/icon.svg",
    "HTTPS://example.com/icon.png",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:image/webp,abc",
    "data:image/x-icon;base64,AAAB",
]


@pytest.mark.parametrize("text", URLS_WITH_CREDENTIALS)
def test_a_url_with_credentials_is_rejected(text: str) -> None:
    assert "fields for credentials" in (check_no_credentials(text) or "")


@pytest.mark.parametrize("text", URLS_WITHOUT_CREDENTIALS)
def test_a_url_without_credentials_is_accepted(text: str) -> None:
    assert check_no_credentials(text) is None


@pytest.mark.parametrize("text", INVALID_ICONS)
def test_a_url_that_is_not_an_image_is_rejected_as_icon(text: str) -> None:
    assert check_icon(text)


@pytest.mark.parametrize("text", VALID_ICONS)
def test_images_and_strings_without_a_scheme_are_accepted_as_icons(text: str) -> None:
    assert check_icon(text) is None


Steps = tuple[str, ...]


def list_url_fields(url_fields: UrlFields, steps: Steps = ()) -> list[Steps]:
    inner = [each for name, below in url_fields.fields.items() for each in list_url_fields(below, (*steps, name))]
    return inner if url_fields.check is None else [steps, *inner]


URL_FIELDS = [(kind, steps) for kind in KINDS if kind.persisted for steps in list_url_fields(find_url_fields(kind))]


def test_the_url_fields_of_all_kinds_are_found() -> None:
    found = {f"{kind.name} {'.'.join(steps)}" for kind, steps in URL_FIELDS}
    assert {"App spec.icon", "User spec.icon", "App spec.config.chart.repoURL", "App spec.helm.repoUrl"} <= found
    assert "VirtualClusterTemplate spec.versions.template.helmRelease.chart.repo" in found
    assert "Runner spec.endpoint" in found and "OwnedAccessKey spec.oidcProvider.redirectUri" in found


def build_object(kind: Kind, steps: Steps, text: str) -> Object:
    schema: dict[str, Any] = {"properties": dict(kind.fields)}
    lists = []
    for step in steps:
        schema = schema["properties"][step]
        lists.append("items" in schema)
        schema = schema.get("items", schema)
    value: Any = text
    for step, is_list in zip(reversed(steps), reversed(lists), strict=True):
        value = {step: [value] if is_list else value}
    found: Object = value
    return found


@pytest.mark.parametrize(
    ("kind", "steps"), URL_FIELDS, ids=lambda each: each.name if isinstance(each, Kind) else ".".join(each)
)
def test_urls_are_checked_in_each_field_of_each_kind(kind: Kind, steps: Steps) -> None:
    obj = build_object(kind, steps, "https://user:canary@example.com")

    def find_problems(user: User, old: Object | None) -> list[str]:
        return [str(each) for each in url_problems(find_url_fields(kind), Change("update", kind, user, old, obj))]

    (problem,) = find_problems(ADA, {})
    assert "must not contain a user or password" in problem and "canary" not in problem
    assert find_problems(ADA, obj) == [], "a stored value may stay"
    assert find_problems(CONTROLLER_USER, {}) == []


async def test_an_app_with_a_password_in_a_url_is_rejected_with_the_field(api: RegistryFixture) -> None:
    charts = {"chart": {"name": "a", "repoURL": "https://u:canary@charts.example.com"}}
    with pytest.raises(Invalid) as caught:
        await api.create("App", "a", spec={"icon": "javascript:alert(1)", "versions": [charts]})
    assert [each.field for each in caught.value.details.problems] == ["spec.icon", "spec.versions[0].chart.repoURL"]
    assert "canary" not in caught.value.message


async def test_an_app_with_a_stored_invalid_url_can_still_be_changed(api: RegistryFixture) -> None:
    await api.submit(
        "App", api.build_object("App", "a", spec={"icon": "ftp://old"}), WriteOptions(CONTROLLER_USER, "tests")
    )
    await api.patch("App", "a", lambda app: app["spec"].update(displayName="A"))
    with pytest.raises(Invalid):
        await api.patch("App", "a", lambda app: app["spec"].update(icon="ftp://new"))
