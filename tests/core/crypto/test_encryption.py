"""Sealing: the round trip, and everything that must not open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.crypto.encryption import (
    DecryptionError,
    EncryptionKey,
    IntegrityError,
    Keyring,
    UnknownKey,
    is_encrypted,
    key_id_of,
)

OLD, NEW = EncryptionKey("old", bytes(range(32))), EncryptionKey("new", bytes(range(32, 64)))
KEYRING = Keyring([NEW, OLD], "/data/encryption.keys")
PLACE = b"group\x00clusters\x00\x00one\x00"


@given(plain=st.binary(max_size=300), place=st.binary(max_size=50))
def test_what_was_sealed_opens_at_its_place(plain: bytes, place: bytes) -> None:
    sealed = KEYRING.encrypt(plain, place)
    assert is_encrypted(sealed)
    assert key_id_of(sealed) == "new"
    assert KEYRING.decrypt(sealed, place) == plain


@given(plain=st.binary(max_size=40), bit=st.integers(min_value=0))
def test_a_single_changed_bit_anywhere_keeps_it_shut(plain: bytes, bit: int) -> None:
    sealed = bytearray(KEYRING.encrypt(plain, PLACE))
    bit %= len(sealed) * 8
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((DecryptionError, ValueError)):
        KEYRING.decrypt(bytes(sealed), PLACE)


@given(cut=st.integers(0, 60))
def test_a_value_that_was_cut_off_keeps_shut(cut: int) -> None:
    sealed = KEYRING.encrypt(b"password: canary", PLACE)
    with pytest.raises((DecryptionError, ValueError)):
        KEYRING.decrypt(sealed[: min(cut, len(sealed) - 1)], PLACE)


@given(place=st.binary(max_size=50).filter(lambda place: place != PLACE))
def test_it_does_not_open_at_another_place(place: bytes) -> None:
    with pytest.raises(IntegrityError):
        KEYRING.decrypt(KEYRING.encrypt(b"canary", PLACE), place)


def test_nothing_of_the_plain_value_shows() -> None:
    sealed = KEYRING.encrypt(b"canary" * 20, PLACE)
    assert b"canary" not in sealed
    assert len(sealed) < 120 + 64


def test_the_same_value_is_sealed_differently_each_time() -> None:
    assert len({KEYRING.encrypt(b"canary", PLACE) for _ in range(100)}) == 100


def test_an_older_key_still_opens_and_the_first_one_seals() -> None:
    before = Keyring([OLD], "before").encrypt(b"canary", PLACE)
    assert KEYRING.decrypt(before, PLACE) == b"canary"
    assert key_id_of(before) == "old"
    assert KEYRING.active_key_id == "new"


def test_an_unknown_key_is_named_with_the_place_to_put_it_back() -> None:
    sealed = KEYRING.encrypt(b"canary", PLACE)
    with pytest.raises(UnknownKey) as caught:
        Keyring([OLD], "/data/encryption.keys").decrypt(sealed, PLACE)
    assert str(caught.value) == (
        "encrypted with key new, which is not in /data/encryption.keys; restore that key from a backup"
    )


def test_another_key_of_the_same_id_does_not_open_it() -> None:
    sealed = KEYRING.encrypt(b"canary", PLACE)
    with pytest.raises(IntegrityError, match="key new in elsewhere is not the one that encrypted it"):
        Keyring([EncryptionKey("new", bytes(32))], "elsewhere").decrypt(sealed, PLACE)


def test_a_value_relabelled_with_another_key_of_the_ring_does_not_open() -> None:
    sealed = KEYRING.encrypt(b"canary", PLACE)
    with pytest.raises(IntegrityError):
        KEYRING.decrypt(sealed.replace(b"\x03new", b"\x03old", 1), PLACE)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"kind":"Secret"}', b"null", b"\x00", b"\x00FLS"])
def test_json_and_fragments_are_not_taken_for_sealed(value: bytes) -> None:
    assert not is_encrypted(value)
    with pytest.raises(ValueError, match="not encrypted"):
        key_id_of(value)


def test_the_secret_of_a_key_is_in_no_representation() -> None:
    key = EncryptionKey("id", b"canary-canary-canary-canary-cana")
    assert "canary" not in repr(key) + str(key) + repr(Keyring([key], "here"))


@pytest.mark.parametrize("id", ["", "with space", "with/slash", "é", "x" * 33, "line\n"])
def test_an_id_that_could_be_misread_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="an id is"):
        EncryptionKey(id, bytes(32))


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        EncryptionKey("id", bytes(length))


def test_a_keyring_needs_keys_that_can_be_told_apart() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keyring([], "nowhere")
    with pytest.raises(ValueError, match="same id"):
        Keyring([NEW, EncryptionKey("new", bytes(32))], "nowhere")


def test_older_keys_are_put_behind_and_never_in_place_of_a_newer_one() -> None:
    other = EncryptionKey("new", bytes(32))
    both = Keyring([NEW], "file").with_fallback(Keyring([OLD, other], "before"))
    assert (both.keys, both.source) == ((NEW, OLD), "file")
