"""Tests of `sanitize_error` in `fairlead.controllers.helm.helm`, with errors of Helm 3.17 and 4.2."""

import pytest

from fairlead.controllers.helm.helm import (
    CLUSTER_NOT_REACHED,
    MAX_MESSAGE_LENGTH,
    _last_error,
    is_forbidden,
    is_not_installed,
    sanitize_error,
)
from fairlead.controllers.helm.missing_rules import describe_missing_rules

GROUPS = ", ".join(f'"group-{number}"' for number in range(60))
RULES = (
    '{APIGroups:[""], Resources:["pods/resize"], Verbs:["patch" "update"]}\n'
    '{APIGroups:["events.k8s.io"], Resources:["events"], Verbs:["create"]}\n'
    '{APIGroups:["discovery.k8s.io"], Resources:["endpointslices"], ResourceNames:["x"], Verbs:["get"]}\n'
)
ESCALATION = (
    'roles.rbac.authorization.k8s.io "vc-one" is forbidden: user "system:serviceaccount:kube-system:fairlead" '
    f"(groups=[{GROUPS}]) is attempting to grant RBAC permissions not currently held:\n{RULES}"
)
INVALID = 'ConfigMap "UPPER" is invalid: metadata.name: Invalid value: "UPPER": a lowercase RFC 1123 subdomain'
WARNING = 'level=WARN msg="upgrade failed" name=one error="failed to create resource"\n'
UNREACHABLE = 'Get "https://10.0.0.1:6443/version": dial tcp 10.0.0.1:6443: connect: connection refused\n'


@pytest.mark.parametrize(
    "stderr",
    [
        "Error: execution error at (vc/templates/x.yaml:1:3): set the value b\n",
        "Error: UPGRADE FAILED: execution error at (vc/templates/x.yaml:1:3): set the value b\n",
        "Error: parse error at (vc/templates/x.yaml:1): unclosed action\n",
        'Error: template: vc/templates/x.yaml:1:10: executing "vc/templates/x.yaml" at <.Values.a.b>: nil pointer\n',
        "Error: YAML parse error on vc/templates/x.yaml: error converting YAML to JSON: yaml: mapping values are not\n",
        "Error: failed to parse [...]/values.yaml: error converting YAML to JSON: yaml: mapping values are not\n",
        f"Error: server-side apply failed for object ns/UPPER /v1, Kind=ConfigMap: {INVALID}\n",
        'Error: create: failed to create: namespaces "nowhere" not found\n',
        'Error: query: failed to query with labels: secrets is forbidden: User "service:deployer:ns" cannot list\n',
        "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress\n",
        'Error: ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a lowercase name\n',
        'Error: Deployment.apps "web" is invalid: spec.selector: Required value\n',
        "Error: uninstallation completed with 1 error(s): uninstall: Failed to purge the release: it is forbidden\n",
        "Error: An error occurred while checking for chart dependencies. You may need to run `helm dependency build` "
        "to fetch missing dependencies: found in Chart.yaml, but missing in charts/ directory: sub\n",
        "Error: chart requires kubeVersion: >=9.0 which is incompatible with Kubernetes v1.35.8\n",
    ],
)
def test_a_line_about_the_release_is_not_changed(stderr: str) -> None:
    assert sanitize_error(stderr.encode(), ()) == stderr.strip()


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (
            "Error: values don't meet the specifications of the schema(s) in the following chart(s):\n"
            "vc:\n- at '/a': got string, want integer\n\n",
            "Error: values don't meet the specifications of the schema(s) in the following chart(s): "
            "vc: - at '/a': got string, want integer",
        ),
        (
            'Error: vc/templates/x.yaml:1:10\n  executing "vc/templates/x.yaml" at <.Values.a.b>:\n    no field b\n',
            'Error: vc/templates/x.yaml:1:10 executing "vc/templates/x.yaml" at <.Values.a.b>: no field b',
        ),
        (
            "Error: unable to build kubernetes objects from release manifest: resource mapping not found\n"
            "ensure CRDs are installed first\n",
            "Error: unable to build kubernetes objects from release manifest: resource mapping not found "
            "ensure CRDs are installed first",
        ),
        (f"Error: 1 error occurred:\n\t* {INVALID}\n\n\n", f"Error: 1 error occurred: * {INVALID}"),
        (
            "Error: failed pre-install: 1 error occurred:\n\t* timed out waiting for the condition\n\n\n",
            "Error: failed pre-install: 1 error occurred: * timed out waiting for the condition",
        ),
        (
            "Error: failed pre-install: resource Job/ns/h not ready. status: InProgress\ncontext deadline exceeded\n",
            "Error: failed pre-install: resource Job/ns/h not ready. status: InProgress context deadline exceeded",
        ),
        (f"{WARNING}Error: UPGRADE FAILED: no\n", "Error: UPGRADE FAILED: no"),
    ],
)
def test_several_lines_are_joined_without_the_warnings_before_them(stderr: str, expected: str) -> None:
    assert sanitize_error(stderr.encode(), ()) == expected


@pytest.mark.parametrize(
    "stderr",
    [
        'Error: looks like "https://10.0.0.1" is not a valid chart repository or cannot be reached: '
        "error converting YAML to JSON: secret words\n",
        'Error: looks like "https://10.0.0.1" is not a valid chart repository or cannot be reached: '
        "failed to fetch https://10.0.0.1/index.yaml : 401 secret words\n",
        'Error: Get "https://10.0.0.1:1/v2/x/vc/tags/list": dial tcp 10.0.0.1:1: connect: connection refused\n',
        'Error: GET "https://10.0.0.1:44339/v2/vc/tags/list": response status code 404: secret words\n',
        'Error: failed to do request: Head "https://10.0.0.1/v2/vc/manifests/1.2.3": read tcp: connection reset\n',
        'Error: authenticating to "10.0.0.1:44339": secret words\n',
    ],
)
def test_what_another_server_than_the_cluster_said_is_hidden(stderr: str) -> None:
    assert sanitize_error(stderr.encode(), ()) == ""


@pytest.mark.parametrize(
    "stderr",
    [
        f"Error: Kubernetes cluster unreachable: {UNREACHABLE}",
        f"Error: kubernetes cluster unreachable: {UNREACHABLE}",
        "Error: kubernetes cluster unreachable: the server has asked for the client to provide credentials\n",
    ],
)
def test_the_error_of_an_unreachable_cluster_has_no_details(stderr: str) -> None:
    assert sanitize_error(stderr.encode(), ()) == CLUSTER_NOT_REACHED


@pytest.mark.parametrize(
    "stderr",
    [
        "secret words\n",
        "Error: secret words\n",
        "Error: UPGRADE FAILED: failed to fetch https://10.0.0.1/x : secret words\n",
        "secret words Error: release: not at the beginning of a line\n",
        "Error: release: of an earlier error\nError: secret words\n",
    ],
)
def test_t22_any_other_error_is_hidden(stderr: str) -> None:
    assert sanitize_error(stderr.encode(), ()) == ""


def test_a_sanitized_error_is_limited_and_printable() -> None:
    text = sanitize_error(b"Error: UPGRADE FAILED: \x1b[1m" + b"x" * 10_000, ())
    assert len(text) == MAX_MESSAGE_LENGTH and text.isprintable()


def test_a_missing_release_is_distinguished_from_a_forbidden_one() -> None:
    not_installed = b"Error: uninstall: Release not loaded: one: release: not found\n"
    forbidden = (
        b"Error: uninstall: Release not loaded: one: query: failed to query with labels: secrets is forbidden: "
        b'User "x" cannot list resource "secrets" in API group "" in the namespace "ns"\n'
    )
    assert (is_not_installed(not_installed), is_forbidden(not_installed)) == (True, False)
    assert (is_not_installed(forbidden), is_forbidden(forbidden)) == (False, True)


@pytest.mark.parametrize(
    "prefix",
    [
        "Error: UPGRADE FAILED: failed to create resource: ",
        "Error: INSTALLATION FAILED: 1 error occurred:\n\t* ",
        "Error: server-side apply failed for object ns/vc-one rbac.authorization.k8s.io/v1, Kind=Role: ",
    ],
)
def test_missing_rules_are_named_first_and_without_the_groups(prefix: str) -> None:
    message = describe_missing_rules(_last_error(f"{prefix}{ESCALATION}".encode()))
    assert message.startswith(
        'the stored credential may not grant what the chart\'s Role "vc-one" grants: pods/resize [patch update]; '
        "events.events.k8s.io [create]; endpointslices.discovery.k8s.io x [get]; `fairlead cluster role"
    )
    assert "group-1" not in message and "serviceaccount" not in message


def test_many_missing_rules_are_counted() -> None:
    rules = "".join(f'{{APIGroups:[""], Resources:["r{number}"], Verbs:["get"]}}\n' for number in range(25))
    text = ESCALATION.partition("held:")[0] + "held:\n" + rules
    assert "r19 [get]; and 5 more; `fairlead" in describe_missing_rules(_last_error(f"Error: {text}".encode()))


def test_other_errors_are_not_about_missing_rules() -> None:
    assert describe_missing_rules(f"Error: UPGRADE FAILED: {INVALID}") == ""
