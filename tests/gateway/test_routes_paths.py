"""Tests of paths in `fairlead.gateway.routes`: a path is forwarded unchanged or rejected."""

import pytest

from fairlead.core.errors import BadRequest
from fairlead.gateway.routes import decoded_path, strip_prefix

GATEWAY_PREFIX = "/kubernetes/cluster/c"


@pytest.mark.parametrize(
    ("raw_target", "path"),
    [
        (GATEWAY_PREFIX, "/"),
        (f"{GATEWAY_PREFIX}/", "/"),
        (f"{GATEWAY_PREFIX}?timeout=32s", "/?timeout=32s"),
        (
            f"{GATEWAY_PREFIX}/api/v1/pods?limit=500&labelSelector=a%2Fb%3Dc",
            "/api/v1/pods?limit=500&labelSelector=a%2Fb%3Dc",
        ),
        (f"{GATEWAY_PREFIX}/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", None),
        (f"{GATEWAY_PREFIX}/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3anode", None),
        (f"{GATEWAY_PREFIX}/api/v1/namespaces/n/services/https:web:443/proxy/", None),
        (f"{GATEWAY_PREFIX}/.well-known/openid-configuration", None),
        (f"{GATEWAY_PREFIX}/openapi/v3?hash=AB%25", None),
        (f"{GATEWAY_PREFIX}/api/v1/pods?continue=//../..", None),
    ],
)
def test_the_path_below_the_prefix_is_not_changed(raw_target: str, path: str | None) -> None:
    assert strip_prefix(raw_target, 3) == (raw_target.removeprefix(GATEWAY_PREFIX) if path is None else path)


def test_the_prefix_of_a_space_has_five_segments() -> None:
    assert strip_prefix("/kubernetes/project/p/space/s/api/v1/pods", 5) == "/api/v1/pods"


@pytest.mark.parametrize(
    "path",
    [
        "//api",
        "/api//v1",
        "/api/v1//",
        "/.",
        "/..",
        "/./api",
        "/api/../x",
        "/api/..",
        "/api/%2e%2e/x",
        "/api/%2E./x",
        "/api%2fv1",
        "/api%2Fv1",
        "/api%5cv1",
        "/api%5Cv1",
        "/api\\v1",
        "/api/%00",
        "/api/%0a",
        "/api/%1f",
        "/api/%7f",
        "/api/\x00",
        "/api/\r\nx: y",
        "/api/a b",
        "/api/ä",
        "/api/%252e%252e/x",
        "/api/%zz",
        "/api/%4",
        "/api#x",
        "/api?a b",
        "/api?a\x00b",
        "/api?a\r\nhost:x",
        "/api?a#b",
    ],
)
def test_an_ambiguous_path_is_rejected(path: str) -> None:
    with pytest.raises(BadRequest):
        strip_prefix(GATEWAY_PREFIX + path, 3)


def test_an_ambiguous_prefix_is_rejected() -> None:
    for raw_target in (
        "//kubernetes/cluster/c/api",
        "/kubernetes/cluster/c/../d/api",
        "/kubernetes/cluster%2fc/api",
        "*",
        "",
    ):
        with pytest.raises(BadRequest):
            strip_prefix(raw_target, 3)


def test_the_decoded_path_is_decoded_once_and_has_no_query() -> None:
    assert decoded_path("/apis/g/v1/x/system%3anode?a=%41") == "/apis/g/v1/x/system:node"
