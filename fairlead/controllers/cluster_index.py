"""Which clusters name a secret, and which say that they are the same cluster: kept by the controller beside it."""

from typing import TypeVar

from fairlead.storage.contract import Key

Name = TypeVar("Name")


class ClusterIndex:
    def __init__(self) -> None:
        self.by_secret: dict[tuple[str, str], set[Key]] = {}
        self.by_uid: dict[str, set[Key]] = {}
        self._noted: dict[Key, tuple[tuple[str, str] | None, str]] = {}

    def note(self, key: Key, secret: tuple[str, str] | None, uid: str) -> None:
        before_secret, before_uid = self._noted.pop(key, (None, ""))
        if before_secret:
            _take(self.by_secret, before_secret, key)
        if before_uid:
            _take(self.by_uid, before_uid, key)
        if secret:
            self.by_secret.setdefault(secret, set()).add(key)
        if uid:
            self.by_uid.setdefault(uid, set()).add(key)
        if secret or uid:
            self._noted[key] = (secret, uid)


def _take(index: dict[Name, set[Key]], name: Name, key: Key) -> None:
    index[name].discard(key)
    if not index[name]:
        del index[name]
