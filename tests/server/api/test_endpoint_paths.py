"""server/api/endpoint_paths.py: endpoints with the name of a connector in their path."""

import pytest

from fairlead.core.call import RequestInfo
from fairlead.server.api.endpoint_paths import endpoint_name, endpoint_pattern
from fairlead.server.auth.stages import is_public
from tests.harness.calls import call


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/auth/okta/login", "/auth/*/login"),
        ("/auth/logout", "/auth/logout"),
        ("/auth//login", "/auth//login"),
        ("/auth/a/b/c", "/auth/a/b/c"),
        ("/api/a/login", "/api/a/login"),
    ],
)
def test_a_path_with_a_name_has_a_pattern(path: str, pattern: str) -> None:
    assert endpoint_pattern(path) == pattern


def test_the_name_is_the_second_part() -> None:
    assert endpoint_name("/auth/okta/callback") == "okta"


@pytest.mark.parametrize(
    ("verb", "path", "expected"),
    [
        ("get", "/auth/okta/login", True),
        ("get", "/auth/okta/callback", True),
        ("post", "/auth/okta/backchannel-logout", True),
        ("post", "/auth/okta/login", False),
        ("get", "/auth/okta/backchannel-logout", False),
        ("get", "/auth/okta/other/login", False),
        ("get", "/auth//login", False),
        ("get", "/auth/login", False),
        ("post", "/auth/logout", False),
        ("get", "/api/okta/login", False),
    ],
)
def test_the_endpoints_of_connectors_are_public(verb: str, path: str, expected: bool) -> None:
    assert is_public(call(target=RequestInfo(verb, path))) is expected
