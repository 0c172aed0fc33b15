"""What real clusters answer, and whose matter it is: the template's, the stored credential's, or nobody's for now.

The answers were recorded from kube-apiserver 1.35; `tests/reference` brings some of them about again.
"""

import json
from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.upstream.kube_client import response_error

HOOK = 'admission webhook "hook.example.com" denied the request'
POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request"
FORBIDDEN = 'pods "p" is forbidden'
UNTYPED = "failed to create typed patch object (/d; apps/v1, Kind=Deployment)"
UNCONVERTED = "failed to convert new object (/s; /v1, Kind=Secret) to proper version: error decoding from json"
GRANTING = (
    'rolebindings.rbac.authorization.k8s.io "y" is forbidden: user "system:serviceaccount:kube-system:platform" '
    '(groups=["system:serviceaccounts"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'
)
CANNOT = (
    'configmaps "x" is forbidden: User "system:serviceaccount:kube-system:platform" cannot patch resource "configmaps" '
    'in API group "" in the namespace "demo"'
)
ABOUT_TEMPLATE = [
    (500, "", f"{UNTYPED}: .spec.foo: field not declared in schema", "Invalid", ".spec.foo: field not declared"),
    (500, "", f"{UNTYPED}: .spec.replicas: expected numeric (int or float), got string", "Invalid", "got string"),
    (500, "", f'{UNTYPED}: .spec.x: duplicate entries for key [name="c"]', "Invalid", "duplicate entries"),
    (500, "", f"{UNCONVERTED}: illegal base64 data at input byte 3", "Invalid", "illegal base64 data"),
    (422, "Invalid", 'Deployment.apps "d" is invalid: spec.selector: Required value', "Invalid", "Required value"),
    (400, "BadRequest", "metadata.managedFields must be nil", "BadRequest", "must be nil"),
    (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", "RequestEntityTooLarge", "3145728"),
    (400, "", f"{HOOK}: no such thing here", "AdmissionDenied", "no such thing here"),
    (400, "", f"{HOOK} without explanation", "AdmissionDenied", "without explanation"),
    *[(code, "", f"{HOOK}: no", "AdmissionDenied", "hook.example.com") for code in (409, 429, 500)],
    (401, "Unauthorized", f"{HOOK}: not you", "AdmissionDenied", "not you"),
    (403, "Forbidden", f"{HOOK}: forbidden by hook", "AdmissionDenied", "forbidden by hook"),
    (404, "NotFound", f"{HOOK}: no such owner", "AdmissionDenied", "no such owner"),
    (422, "Invalid", f'secrets "no" is forbidden: {POLICY}: no', "AdmissionDenied", "denied request: no"),
    (403, "Forbidden", f'secrets "no" is forbidden: {POLICY}: no', "AdmissionDenied", "denied request: no"),
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


def trouble_of(status: int, reason: str, message: str, **details: Any) -> InstanceError:
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message, "details": details}
    if reason:
        body["reason"] = reason
    return caught(status, json.dumps(body).encode())


def caught(status: int, content: bytes) -> InstanceError:
    with pytest.raises(InstanceError) as found, translate_errors("c", "apply it"):
        raise response_error(status, content)
    return found.value


@pytest.mark.parametrize(("status", "reason", "message", "word", "shown"), ABOUT_TEMPLATE)
def test_what_is_wrong_with_a_template_is_shown(status: int, reason: str, message: str, word: str, shown: str) -> None:
    trouble = trouble_of(status, reason, message)
    assert (trouble.reason, trouble.severity) == (word, ERROR)
    assert shown in trouble.message


@pytest.mark.parametrize("message", [CANNOT, GRANTING, 'forbidden: User "x" cannot get path "/version"'])
def test_what_is_said_about_the_credential_is_not_repeated(message: str) -> None:
    trouble = trouble_of(403, "Forbidden", message)
    assert (trouble.reason, trouble.severity) == ("Forbidden", ERROR)
    assert "grant that permission" in trouble.message
    assert "system:serviceaccount" not in trouble.message


def test_a_refusal_that_no_kubernetes_has_written_is_taken_for_one_of_the_credential() -> None:
    assert caught(403, b"<html>go away</html>").reason == "Forbidden"


def test_a_namespace_that_is_being_deleted_is_waited_for() -> None:
    message = 'configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated'
    cause = {"reason": "NamespaceTerminating", "message": "namespace n is being terminated"}
    trouble = trouble_of(403, "Forbidden", message, causes=[cause])
    assert (trouble.reason, trouble.severity) == ("NamespaceTerminating", INFO)


@pytest.mark.parametrize(
    ("status", "reason", "message", "word"),
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
def test_what_may_pass_by_itself_is_tried_again(status: int, reason: str, message: str, word: str) -> None:
    trouble = trouble_of(status, reason, message)
    assert (trouble.reason, trouble.severity) == (word, WARNING)
    assert "10.1.2.3" not in trouble.message


def test_the_value_of_a_secret_is_not_repeated() -> None:
    place = "failed to create typed patch object (/s; /v1, Kind=Secret): .stringData.pin"
    trouble = trouble_of(500, "", f"{place}: expected string, got &value.valueUnstructured{{Value:1234}}")
    assert ".stringData.pin: expected string" in trouble.message
    assert "1234" not in trouble.message


@pytest.mark.parametrize("causes", [None, "x", [None, 1, {"reason": ["x"]}], [{}] * 1000])
def test_odd_causes_do_no_harm(causes: Any) -> None:
    assert trouble_of(422, "Invalid", "x", causes=causes).reason == "Invalid"
