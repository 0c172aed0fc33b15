"""Storage errors become API errors here and nowhere else. Conflicts do not: what they mean depends on the verb."""

from types import TracebackType

from fairlead.core.errors import Details, Expired, Unavailable
from fairlead.storage import contract

RETRY_SECONDS = 1


class _Translating:
    """A class and no generator, which takes three times as long to enter: every request comes through here."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, contract.Compacted):
            raise Expired(f"too old resource version: {error.asked} ({error.oldest})") from None
        if isinstance(error, contract.Unavailable):
            raise Unavailable(str(error), Details(retry_after=RETRY_SECONDS)) from None


_translating = _Translating()


def storage_errors() -> _Translating:
    """Stands around whatever asks a store."""
    return _translating
