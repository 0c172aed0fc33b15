"""Tests of `fairlead.controllers.instances.remote_errors`: errors of templates and credentials, and temporary ones.

The responses were recorded from kube-apiserver 1.35; `tests/reference` reproduces some of them.
"""

import json
from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.upstream.kube_client import response_error

WEBHOOK_DENIED = 'admission webhook "hook.example.com" denied the request'
POLICY_DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request"
FORBIDDEN = 'pods "p" is forbidden'
TYPED_PATCH_FAILED = "failed to create typed patch object (/d; apps/v1, Kind=Deployment)"
CONVERSION_FAILED = "failed to convert new object (/s; /v1, Kind=Secret) to proper version: error decoding from json"
GRANT_FORBIDDEN = (
    'rolebindings.rbac.authorization.k8s.io "y" is forbidden: user "system:serviceaccount:kube-system:platform" '
    '(groups=["system:serviceaccounts"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'
)
PATCH_FORBIDDEN = (
    'configmaps "x" is forbidden: User "system:serviceaccount:kube-system:platform" cannot patch resource "configmaps" '
    'in API group "" in the namespace "demo"'
)
TEMPLATE_ERRORS = [
    (
        500,
        "",
        f"{TYPED_PATCH_FAILED}: .spec.foo: field not declared in schema",
        "Invalid",
        ".spec.foo: field not declared",
    ),
    (
        500,
        "",
        f"{TYPED_PATCH_FAILED}: .spec.replicas: expected numeric (int or float), got string",
        "Invalid",
        "got string",
    ),
    (500, "", f'{TYPED_PATCH_FAILED}: .spec.x: duplicate entries for key [name="c"]', "Invalid", "duplicate entries"),
    (500, "", f"{CONVERSION_FAILED}: illegal base64 data at input byte 3", "Invalid", "illegal base64 data"),
    (422, "Invalid", 'Deployment.apps "d" is invalid: spec.selector: Required value', "Invalid", "Required value"),
    (400, "BadRequest", "metadata.managedFields must be nil", "BadRequest", "must be nil"),
    (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", "RequestEntityTooLarge", "3145728"),
    (400, "", f"{WEBHOOK_DENIED}: no such thing here", "AdmissionDenied", "no such thing here"),
    (400, "", f"{WEBHOOK_DENIED} without explanation", "AdmissionDenied", "without explanation"),
    *[(code, "", f"{WEBHOOK_DENIED}: no", "AdmissionDenied", "hook.example.com") for code in (409, 429, 500)],
    (401, "Unauthorized", f"{WEBHOOK_DENIED}: not you", "AdmissionDenied", "not you"),
    (403, "Forbidden", f"{WEBHOOK_DENIED}: forbidden by hook", "AdmissionDenied", "forbidden by hook"),
    (404, "NotFound", f"{WEBHOOK_DENIED}: no such owner", "AdmissionDenied", "no such owner"),
    (422, "Invalid", f'secrets "no" is forbidden: {POLICY_DENIED}: no', "AdmissionDenied", "denied request: no"),
    (403, "Forbidden", f'secrets "no" is forbidden: {POLICY_DENIED}: no', "AdmissionDenied", "denied request: no"),
    (403, "Forbidden", f"{FORBIDDEN}: exceeded quota: q, requested: pods=1", "QuotaExceeded", "pods=1"),
    (
        403,
        "Forbidden",
        f"{FORBIDDEN}: failed quota: q: must specify requests.cpu",
        "QuotaExceeded",
        "requests",
    ),
    (403, "Forbidden", f"{FORBIDDEN}: maximum cpu usage per Container is 1", "AdmissionDenied", "maximum cpu"),
    (
        403,
        "Forbidden",
        f'{FORBIDDEN}: violates PodSecurity "restricted:latest": x',
        "AdmissionDenied",
        "violates",
    ),
    (
        403,
        "Forbidden",
        f"{FORBIDDEN}: no PriorityClass with name x was found",
        "AdmissionDenied",
        "no Priority",
    ),
]


def translate_status(status: int, reason: str, message: str, **details: Any) -> InstanceError:
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message, "details": details}
    if reason:
        body["reason"] = reason
    return translate_response(status, json.dumps(body).encode())


def translate_response(status: int, content: bytes) -> InstanceError:
    with pytest.raises(InstanceError) as caught, translate_errors("c", "apply it"):
        raise response_error(status, content)
    return caught.value


@pytest.mark.parametrize(("status", "reason", "message", "expected_reason", "expected_message"), TEMPLATE_ERRORS)
def test_errors_of_a_template_contain_the_message_of_the_cluster(
    status: int, reason: str, message: str, expected_reason: str, expected_message: str
) -> None:
    error = translate_status(status, reason, message)
    assert (error.reason, error.severity) == (expected_reason, ERROR)
    assert expected_message in error.message


@pytest.mark.parametrize(
    "message", [PATCH_FORBIDDEN, GRANT_FORBIDDEN, 'forbidden: User "x" cannot get path "/version"']
)
def test_errors_of_the_credential_do_not_contain_the_message_of_the_cluster(message: str) -> None:
    error = translate_status(403, "Forbidden", message)
    assert (error.reason, error.severity) == ("Forbidden", ERROR)
    assert "grant that permission" in error.message
    assert "system:serviceaccount" not in error.message


def test_a_403_that_is_no_status_object_is_an_error_of_the_credential() -> None:
    assert translate_response(403, b"<html>go away</html>").reason == "Forbidden"


def test_a_terminating_namespace_is_no_failure() -> None:
    message = 'configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated'
    cause = {"reason": "NamespaceTerminating", "message": "namespace n is being terminated"}
    error = translate_status(403, "Forbidden", message, causes=[cause])
    assert (error.reason, error.severity) == ("NamespaceTerminating", INFO)


@pytest.mark.parametrize(
    ("status", "reason", "message", "expected_reason"),
    [
        (500, "", "etcdserver: request timed out", "ClusterFailing"),
        (503, "", "service unavailable", "ClusterFailing"),
        (429, "TooManyRequests", "too many requests, please try again later", "ClusterFailing"),
        (404, "NotFound", 'namespaces "n" not found', "NotFound"),
        (409, "Conflict", 'Operation cannot be fulfilled on configmaps "x": the object has been modified', "Conflict"),
        (403, "Forbidden", f"{FORBIDDEN}: status unknown for quota: q, resources: pods", "QuotaUnknown"),
        (401, "Unauthorized", "Unauthorized", "Unauthorized"),
        (
            500,
            "InternalError",
            'Internal error occurred: failed calling webhook "h.io": 10.1.2.3',
            "WebhookFailing",
        ),
    ],
)
def test_temporary_errors_are_warnings(status: int, reason: str, message: str, expected_reason: str) -> None:
    error = translate_status(status, reason, message)
    assert (error.reason, error.severity) == (expected_reason, WARNING)
    assert "10.1.2.3" not in error.message


def test_the_value_of_a_secret_is_not_in_the_error() -> None:
    error_prefix = "failed to create typed patch object (/s; /v1, Kind=Secret): .stringData.pin"
    error = translate_status(500, "", f"{error_prefix}: expected string, got &value.valueUnstructured{{Value:1234}}")
    assert ".stringData.pin: expected string" in error.message
    assert "1234" not in error.message


@pytest.mark.parametrize("causes", [None, "x", [None, 1, {"reason": ["x"]}], [{}] * 1000])
def test_invalid_causes_are_ignored(causes: Any) -> None:
    assert translate_status(422, "Invalid", "x", causes=causes).reason == "Invalid"
