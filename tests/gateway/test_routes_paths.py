"""Paths reach a cluster as they were sent, or not at all."""

import pytest

from fairlead.core.errors import BadRequest
from fairlead.gateway.routes import decoded_path, strip_prefix

ENTRANCE = "/kubernetes/cluster/c"


@pytest.mark.parametrize(
    ("raw", "inner"),
    [
        (ENTRANCE, "/"),
        (f"{ENTRANCE}/", "/"),
        (f"{ENTRANCE}?timeout=32s", "/?timeout=32s"),
        (f"{ENTRANCE}/api/v1/pods?limit=500&labelSelector=a%2Fb%3Dc", "/api/v1/pods?limit=500&labelSelector=a%2Fb%3Dc"),
        (f"{ENTRANCE}/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", None),
        (f"{ENTRANCE}/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3anode", None),
        (f"{ENTRANCE}/api/v1/namespaces/n/services/https:web:443/proxy/", None),
        (f"{ENTRANCE}/.well-known/openid-configuration", None),
        (f"{ENTRANCE}/openapi/v3?hash=AB%25", None),
        (f"{ENTRANCE}/api/v1/pods?continue=//../..", None),
    ],
)
def test_what_is_behind_the_entrance_is_kept_byte_by_byte(raw: str, inner: str | None) -> None:
    assert strip_prefix(raw, 3) == (raw.removeprefix(ENTRANCE) if inner is None else inner)


def test_a_space_has_a_longer_entrance() -> None:
    assert strip_prefix("/kubernetes/project/p/space/s/api/v1/pods", 5) == "/api/v1/pods"


@pytest.mark.parametrize(
    "inner",
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
def test_a_path_with_tricks_is_refused(inner: str) -> None:
    with pytest.raises(BadRequest):
        strip_prefix(ENTRANCE + inner, 3)


def test_tricks_in_front_of_the_entrance_are_refused() -> None:
    for raw in ("//kubernetes/cluster/c/api", "/kubernetes/cluster/c/../d/api", "/kubernetes/cluster%2fc/api", "*", ""):
        with pytest.raises(BadRequest):
            strip_prefix(raw, 3)


def test_the_plain_path_is_decoded_once_and_has_no_query() -> None:
    assert decoded_path("/apis/g/v1/x/system%3anode?a=%41") == "/apis/g/v1/x/system:node"
