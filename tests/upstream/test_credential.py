"""Tests of `fairlead.upstream.credential`: what a stored credential says about itself."""

from datetime import UTC, datetime

import jwt
import pytest

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.credential import TOKEN, Credential, ServiceAccount, read_credential

ISSUED = datetime(2026, 1, 1, tzinfo=UTC)


def read_token(**claims: object) -> Credential:
    token = jwt.encode(claims, "k" * 32, "HS256")
    return read_credential(ClusterEndpoint("192.0.2.1", 6443, "", "kube.example", "", token))


def test_the_token_of_a_service_account_says_whose_it_is_and_how_long_it_is_valid() -> None:
    found = read_token(iat=ISSUED.timestamp(), exp=ISSUED.timestamp() + 3600, sub="system:serviceaccount:ns:agent")
    assert (found.type, found.issued, found.account) == (TOKEN, ISSUED, ServiceAccount("ns", "agent"))
    assert found.lifetime is not None and found.lifetime.total_seconds() == 3600


@pytest.mark.parametrize("end", [-62135596800, -1, 253402300799, 10**18, float("inf"), "soon", None, True])
def test_an_end_that_is_no_plausible_time_is_unknown(end: object) -> None:
    """Such as the first and the last second that a datetime has: nothing can be subtracted from one of them."""
    found = read_token(iat=ISSUED.timestamp(), exp=end)
    assert (found.issued, found.expires, found.lifetime) == (ISSUED, None, None)
