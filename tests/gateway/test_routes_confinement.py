"""Tests of `check_in_namespace` in `fairlead.gateway.routes`: the gateway of a space is limited to its namespace."""

import pytest

from fairlead.core.errors import Forbidden
from fairlead.gateway.routes import NamespaceScope, check_in_namespace

SPACE = NamespaceScope('space "s" of project "p"', "c", "mine")

ALLOWED = [
    "GET /api/v1/namespaces/mine/pods?watch=true",
    "GET /api/v1/namespaces/mine",
    "HEAD /api/v1/namespaces/mine",
    "POST /api/v1/namespaces/mine/pods",
    "DELETE /api/v1/namespaces/mine/pods/x",
    "DELETE /api/v1/namespaces/mine/pods",
    "GET /api/v1/namespaces/mine/pods/x/exec?command=ls",
    "PATCH /apis/apps/v1/namespaces/mine/deployments/x/scale",
    "GET /api/v1/namespaces/mine/pods/x/status",
    "POST /api/v1/namespaces/mine/services/web/proxy/a/b",
    "GET /",
    "GET /api",
    "GET /api/v1",
    "GET /api/v1/",
    "GET /apis",
    "GET /apis/apps",
    "GET /apis/apps/v1?timeout=32s",
    "GET /openapi/v2",
    "GET /openapi/v3/apis/apps/v1",
    "GET /version",
    "GET /readyz",
    "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
]

FORBIDDEN = [
    "GET /api/v1/pods",
    "GET /api/v1/nodes",
    "GET /api/v1/namespaces",
    "GET /api/v1/namespaces/other",
    "GET /api/v1/namespaces/other/pods",
    "GET /api/v1/namespaces/mine2/pods",
    "GET /api/v1/namespaces/Mine/pods",
    "PATCH /api/v1/namespaces/mine",
    "DELETE /api/v1/namespaces/mine",
    "DELETE /api/v1/namespaces/mine/",
    "PUT /api/v1/namespaces/mine/finalize",
    "PUT /api/v1/namespaces/mine/status",
    "PUT /api/v1/namespaces/mine/%73tatus",
    "GET /api/v1/namespaces/mine/namespaces/other",
    "GET /api/v1/watch/namespaces/mine/pods",
    "GET /api/v1/proxy/namespaces/mine/pods/x",
    "GET /api/v1/nodes/n/proxy/pods",
    "POST /api/v1/namespaces",
    "GET /apis/apps/v1/deployments",
    "GET /apis/rbac.authorization.k8s.io/v1/clusterroles",
    "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
    "GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "POST /apis/evil.io/v1/selfsubjectaccessreviews",
    "POST /apis/authentication.k8s.io/v1/tokenreviews",
    "POST /version",
    "POST /apis/apps/v1",
    "GET /metrics",
    "GET /logs/",
    "GET /debug/pprof",
    "GET /healthz/etcd",
    "GET /.well-known/openid-configuration",
    "GET /anything",
]


@pytest.mark.parametrize("request_line", ALLOWED)
def test_requests_in_the_namespace_and_for_discovery_are_allowed(request_line: str) -> None:
    method, _, path = request_line.partition(" ")
    check_in_namespace(method, path, SPACE)


@pytest.mark.parametrize("request_line", FORBIDDEN)
def test_all_other_requests_are_forbidden(request_line: str) -> None:
    method, _, path = request_line.partition(" ")
    with pytest.raises(Forbidden, match='"kubectl -n mine", or use the gateway of the cluster'):
        check_in_namespace(method, path, SPACE)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/api", "/apis/apps/v1", "/version", "/openapi/v2", "/api/v1/namespaces/mine"])
def test_paths_outside_the_namespace_are_read_only(method: str, path: str) -> None:
    with pytest.raises(Forbidden):
        check_in_namespace(method, path, SPACE)
