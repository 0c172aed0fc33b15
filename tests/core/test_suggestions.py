"""Suggestions for misspelt names."""

import pytest

from fairlead.core.suggestions import did_you_mean, near_names, nearest_word, suggest_name


@pytest.mark.parametrize("typo", ["berlni", "berln", "berlinn", "bberlin", "Berlin", "borlin", "erlin", "berlin1x"])
def test_a_name_with_one_typo_is_near(typo: str) -> None:
    assert near_names(typo, ["oslo", "berlin"]) == ["berlin"]


@pytest.mark.parametrize("name", ["oslo", "bxrlxn", "berlin-east", "", "b"])
def test_other_names_are_not_near(name: str) -> None:
    assert near_names(name, ["berlin", "ab"]) == []


def test_several_near_names_are_sorted() -> None:
    assert near_names("demo3", ["demo2", "demo1", "other"]) == ["demo1", "demo2"]


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("virtualclusters", "virtualclusterinstances"),
        ("workspaces", "devpodworkspaceinstances"),
        ("spaces", "spaceinstances"),
        ("SpaceInstance", "spaceinstances"),
        ("spaecinstances", "spaceinstances"),
        ("zzz", ""),
    ],
)
def test_the_nearest_of_a_few_words_is_suggested(word: str, suggestion: str) -> None:
    assert nearest_word(word, ["devpodworkspaceinstances", "spaceinstances", "virtualclusterinstances"]) == suggestion


def test_a_message_without_a_suggestion_has_no_question() -> None:
    assert (did_you_mean("a"), did_you_mean("")) == ('; did you mean "a"?', "")


def test_nothing_is_suggested_that_is_not_like_the_name() -> None:
    assert suggest_name("prot", ["port", "data"], "unset it") == "did you mean port? Otherwise unset it"
    assert suggest_name("nonsense", ["port", "data"], "unset it") == "unset it"
