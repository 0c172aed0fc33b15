"""Translates storage errors into API errors. Conflicts depend on the verb: that of a create has its own function."""

from types import TracebackType

from fairlead.core.errors import AlreadyExists, Details, Expired, Unavailable
from fairlead.core.objects import metadata
from fairlead.registry import codec
from fairlead.registry.kind import Kind
from fairlead.storage import contract
from fairlead.storage.contract import Key
from fairlead.storage.view.view import View

RETRY_AFTER_SECONDS = 1


class _ErrorTranslation:
    """A class instead of a generator: entering it is three times as fast, and every request does."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, contract.Compacted):
            raise Expired(f"too old resource version: {error.requested} ({error.oldest})") from None
        if isinstance(error, contract.StoreUnavailable):
            raise Unavailable(str(error), Details(retry_after=RETRY_AFTER_SECONDS)) from None


_error_translation = _ErrorTranslation()


def translate_storage_errors() -> _ErrorTranslation:
    """A context manager for calls to a store."""
    return _error_translation


def already_exists(view: View, kind: Kind, key: Key) -> AlreadyExists:
    """The error of a create whose commit found the key in use: its own, or that of a further object."""
    is_same_kind = key[:2] == kind.stored_resource
    group, plural = (kind.group, kind.plural) if is_same_kind else key[:2]
    error = AlreadyExists.of(plural, group, key[3])
    entry = view.get(key)
    if entry is not None and "deletionTimestamp" in metadata(codec.decode(entry)):
        error.message = f"object is being deleted: {error.message}"
    return error
