"""What is rejected first: methods before bodies, options that cannot be parsed before those that contradict."""

from typing import Any

import pytest

from fairlead.core.errors import BadRequest, Invalid
from fairlead.server.api import query_options
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.api_fixture import GADGETS, build_gadget, load_body, open_api
from tests.server.api.test_query_options import WIDGET


@pytest.mark.parametrize("query", ["limit=", "limit=x", "timeoutSeconds=", "timeoutSeconds=1.5", "labelSelector=%3D"])
@pytest.mark.parametrize("options", [query_options.list_query, query_options.watch_query])
def test_options_that_cannot_be_parsed_are_rejected_before_others_are_checked(options: Any, query: str) -> None:
    with pytest.raises(BadRequest):
        options(call(query=f"{query}&resourceVersionMatch=Nope"), WIDGET)


@pytest.mark.parametrize("query", ["continue=x", "sendInitialEvents=false"])
def test_a_watch_is_neither_continued_nor_without_a_match(query: str) -> None:
    with pytest.raises(Invalid, match="resourceVersionMatch: Forbidden"):
        query_options.watch_query(call(query=query), WIDGET)


@pytest.mark.parametrize("query", ["uid=x", "resourceVersion=7"])
def test_preconditions_of_a_delete_can_be_in_the_query(query: str) -> None:
    name, _, value = query.partition("=")
    deleting, _ = query_options.delete_options(call(query=query, method="DELETE"), None, ADMIN)
    assert {"uid": deleting.uid, "resourceVersion": deleting.resource_version}[name] == value


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/namespaces/default/configmaps"),
        ("PATCH", "/api/v1/namespaces/default/configmaps"),
        ("PATCH", "/api/v1/namespaces/default/finalize"),
        ("GET", "/api/v1/namespaces/default/finalize"),
    ],
)
@on_virtual_time
async def test_a_built_in_kind_does_not_allow_other_methods(method: str, path: str) -> None:
    async with open_api() as api:
        status = load_body(await api(method, path, {}), 405)
        assert "details" not in status


@on_virtual_time
async def test_the_error_about_a_method_names_a_resource_that_is_not_built_in() -> None:
    async with open_api() as api:
        status = load_body(await api("TRACE", f"{GADGETS}/a", {}), 405)
        assert status["details"] == {"group": "management.service.sh", "kind": "gadgets"}


@pytest.mark.parametrize("query", ["fieldSelector=x", "labelSelector=%3D", "limit=x"])
@pytest.mark.parametrize("accept", ["application/json;as=Nope;g=meta.k8s.io;v=v1", "text/html"])
@pytest.mark.parametrize("path", [GADGETS, "/api/v1/namespaces/default/configmaps"])
@on_virtual_time
async def test_options_of_a_list_are_parsed_before_its_representation_is_checked(
    path: str, accept: str, query: str
) -> None:
    """Built-in kinds check the media type first, but not what it is to contain."""
    code = 406 if accept == "text/html" and path != GADGETS else 400
    async with open_api() as api:
        load_body(await api("GET", path, query=query, accept=accept), code)
        load_body(await api("GET", path, accept=accept), 406)


@pytest.mark.parametrize(("query", "code"), [("export=true", 400), ("export", 400), ("export=false", 200)])
@on_virtual_time
async def test_an_export_is_no_longer_supported(query: str, code: int) -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        load_body(await api("GET", f"{GADGETS}/a", query=query), code)
