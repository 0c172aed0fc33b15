"""tests.harness.properties: how many examples each profile has, and that tests of security never have fewer."""

import pytest
from hypothesis import settings

from tests.harness.properties import DEFAULT_EXAMPLES, PROFILE_VARIABLE, THOROUGH, at_least, examples


def test_tests_without_a_number_have_that_of_the_profile() -> None:
    assert settings().max_examples == examples(DEFAULT_EXAMPLES)
    assert settings().deadline is None


def test_the_thorough_profile_has_more_examples_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    assert examples(100) < 100
    assert at_least(100) == 100
    monkeypatch.setenv(PROFILE_VARIABLE, THOROUGH)
    assert examples(100) > 100
    assert at_least(100) > 100
