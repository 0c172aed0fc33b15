"""One access key as the authenticator keeps it: its digests, and whether it is still in force.

A life ends by whichever of two clocks says so first: the wall clock, or the monotonic one that counts on from when the
key was first seen. So a wall clock that is set back neither lengthens a life nor gives back one that has ended.
"""

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.core.clock import Clock
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import User
from fairlead.kinds.accesskey import MAX_OVERLAP
from fairlead.kinds.key_life import end_of, slides, ttl_of
from fairlead.kinds.times import parsed


@dataclass(frozen=True, slots=True)
class Use:
    """When a key was used, by both clocks."""

    moment: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class End:
    """When something ends, by both clocks."""

    moment: datetime
    monotonic: float

    @staticmethod
    def at(moment: datetime, clock: Clock, longest: float) -> "End":
        """`longest` bounds what is left: a date from before the clock was set back can seem far away."""
        left = (moment - clock.now()).total_seconds()
        return End(moment, clock.monotonic() + min(left, longest))

    def after(self, use: Use, seconds: int) -> "End":
        """The later of this, and so many seconds after a use."""
        moment = use.moment + timedelta(seconds=seconds)
        return End(max(self.moment, moment), max(self.monotonic, use.monotonic + seconds))

    def is_over(self, clock: Clock) -> bool:
        return clock.now() >= self.moment or clock.monotonic() >= self.monotonic


@dataclass(slots=True)
class Credential:
    """A key object and what has been found out about it. `user` is the identity as of `generation`."""

    key: Object
    current: str
    previous: tuple[tuple[str, End], ...]
    end: End | None
    expired: bool
    off: bool
    """Disabled, or about to be deleted."""
    user: User | None = None
    generation: object = None

    @staticmethod
    def of(key: Object, clock: Clock, before: "Credential | None") -> "Credential":
        """`before` is what was known of the object of that name until now."""
        if before is not None and metadata(before.key).get("uid") != metadata(key).get("uid"):
            before = None
        moment = end_of(key)
        end = End.at(moment, clock, ttl_of(key)) if moment is not None else None
        expired = bool(dig(key, "status.expired"))
        if before is not None and before.end is not None and before.end.moment == moment:
            end, expired = before.end, expired or before.expired
        off = bool(dig(key, "spec.disabled")) or "deletionTimestamp" in metadata(key)
        return Credential(key, dig(key, "spec.key") or "", tuple(_previous(key, clock)), end, expired, off)

    @property
    def is_timeless(self) -> bool:
        """Whether only a change could end it: there is no clock that it goes by."""
        return self.end is None and not self.previous

    def digests(self) -> Iterator[str]:
        """All that the key can be recognised by, in force or not."""
        if self.current:
            yield self.current
        yield from (digest for digest, _ in self.previous if digest != self.current)

    def fits(self, digest: str, clock: Clock) -> bool:
        """Whether a token with this digest is the key: today's value, or an earlier one that still holds."""
        found = bool(self.current) and hmac.compare_digest(self.current, digest)
        for earlier, end in self.previous:
            found |= hmac.compare_digest(earlier, digest) and not end.is_over(clock)
        return found

    def in_force(self, clock: Clock, last_use: Callable[[str], Use | None]) -> bool:
        """Whether the key works by itself: neither disabled, nor going, nor expired. What has expired stays so."""
        if self.expired or self.off:
            return False
        end = self.end
        if end is None:
            return True
        use = last_use(metadata(self.key).get("name", "")) if slides(self.key) else None
        if use is not None:
            end = end.after(use, ttl_of(self.key))
        self.expired = end.is_over(clock)
        return not self.expired


def _previous(key: Object, clock: Clock) -> Iterator[tuple[str, End]]:
    for each in dig(key, "status.previous") or ():
        until = parsed(each.get("until"))
        if until is not None:
            yield each.get("key") or "", End.at(until, clock, MAX_OVERLAP)
