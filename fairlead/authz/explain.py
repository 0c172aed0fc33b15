"""How a decision comes about: what everyone in the chain says, in the order in which they are asked.

`server/reviews.py` puts it into the answer of the platform's own access reviews, which `fairlead key explain` prints.
It asks the same authorizers as `chain.authorize`, so the two cannot disagree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairlead.authz.chain import Authorizer, Decision
from fairlead.core.call import Target
from fairlead.core.user import User

ALLOW, DENY, NO_OPINION, NOT_ASKED = "allow", "deny", "no opinion", "not asked"
DEFAULT = "default"
"""The step that denies what nobody allows."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one of them said, and why."""

    step: str
    verdict: str
    reason: str = ""


def explain(authorizers: Sequence[Authorizer], user: User, target: Target) -> list[Step]:
    """The path of a decision. The first who has an opinion decides; where nobody has one, the last step denies."""
    return list(_steps(authorizers, user, target))


def _steps(authorizers: Sequence[Authorizer], user: User, target: Target) -> Iterator[Step]:
    decided = False
    for authorizer in authorizers:
        name = name_of(authorizer)
        if decided:
            yield Step(name, NOT_ASKED)
            continue
        decision = authorizer(user, target)
        yield _step(name, decision)
        decided = decision is not None
    if not decided:
        yield Step(DEFAULT, DENY, "nobody allows it, and what nobody allows is denied")


def _step(name: str, decision: Decision | None) -> Step:
    if decision is None:
        return Step(name, NO_OPINION)
    return Step(name, ALLOW if decision.allowed else DENY, decision.reason)


def name_of(authorizer: Authorizer) -> str:
    """An authorizer is known by the function, class, or maker of functions that its source names."""
    word = str(getattr(authorizer, "__qualname__", type(authorizer).__name__)).partition(".")[0]
    return word.replace("_", " ").lower()
