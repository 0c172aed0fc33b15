"""Turns with helm: a few at once, and none for a project that has its share already."""

import pytest

from fairlead.controllers.helm.helm import WAITING, Turns
from fairlead.controllers.instances.remote_errors import Trouble


def test_one_project_cannot_take_all_turns() -> None:
    turns = Turns(at_once=3, of_one=2)
    with turns.one("greedy"), turns.one("greedy"):
        with pytest.raises(Trouble) as caught, turns.one("greedy"):
            pass
        assert caught.value.reason == WAITING
        with turns.one("other"), pytest.raises(Trouble), turns.one("third"):
            pass
        with turns.one("third"):
            pass
    with turns.one("greedy"):
        pass


def test_a_turn_is_given_back_after_a_failure() -> None:
    turns = Turns(at_once=1)
    with pytest.raises(ZeroDivisionError), turns.one("p"):
        raise ZeroDivisionError
    with turns.one("p"):
        pass
