"""signin/sso/reasons.py"""

from fairlead.server.metrics.exposition import TEXT, render_families
from fairlead.signin.sso.reasons import SignOnCounters, sign_on_families


def test_counters_have_connector_and_result() -> None:
    counters = SignOnCounters()
    counters.sign_ons["okta", "success"] += 2
    counters.refreshes["okta", "provider_timeout"] += 1
    counters.ended_sessions["okta", "grant_revoked"] += 1
    page = render_families(sign_on_families(counters), TEXT).decode()
    assert 'fairlead_sign_ons_total{connector="okta",result="success"} 2.0' in page
    assert 'fairlead_sign_on_refreshes_total{connector="okta",result="provider_timeout"} 1.0' in page
    assert 'fairlead_sign_on_sessions_ended_total{connector="okta",reason="grant_revoked"} 1.0' in page
