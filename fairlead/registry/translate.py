"""Storage errors become API errors here and nowhere else. Conflicts do not: what they mean depends on the verb."""

from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.core.errors import Details, Expired, Unavailable
from fairlead.storage import contract

RETRY_SECONDS = 1


@contextmanager
def storage_errors() -> Iterator[None]:
    try:
        yield
    except contract.Compacted as error:
        raise Expired(f"too old resource version: {error.asked} ({error.oldest})") from None
    except contract.Unavailable as error:
        raise Unavailable(str(error), Details(retry_after=RETRY_SECONDS)) from None
