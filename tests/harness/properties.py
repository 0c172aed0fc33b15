"""How many examples tests of properties try: few in each run of CI, many with `make test-long`.

Each run tries other examples, so a few in every run find in a week what many would find at once. Tests of permissions,
credentials and encryption try many in every run: `@settings(max_examples=at_least(100))`.
"""

import os

from hypothesis import HealthCheck, settings

PROFILE_VARIABLE = "HYPOTHESIS_PROFILE"
FAST, THOROUGH = "fast", "thorough"
DEFAULT_EXAMPLES = 100
SHARES = {FAST: 0.3, THOROUGH: 10.0}


def load_profile() -> None:
    """Sets the number of examples of tests that do not say one.

    Nothing depends on how long an example takes, because tests run in parallel on machines that do other work.
    """
    settings.register_profile(
        "tests", max_examples=examples(DEFAULT_EXAMPLES), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("tests")


def examples(count: int) -> int:
    """For a test whose examples take longer, or find less, than others: `@settings(max_examples=examples(60))`."""
    return round(count * SHARES[os.environ.get(PROFILE_VARIABLE, FAST)])


def at_least(count: int) -> int:
    """For a test of security: never fewer."""
    return max(count, examples(count))
