"""Tests of `core/crypto/encryption.py`: the round trip, and values that must not be decrypted."""

import pytest
from hypothesis import given, settings
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
from tests.harness.properties import at_least

OLD, NEW = EncryptionKey("old", bytes(range(32))), EncryptionKey("new", bytes(range(32, 64)))
KEYRING = Keyring([NEW, OLD], "/data/encryption.keys")
CONTEXT = b"group\x00clusters\x00\x00one\x00"


@settings(max_examples=at_least(100))
@given(plain=st.binary(max_size=300), context=st.binary(max_size=50))
def test_an_encrypted_value_is_decrypted_with_its_context(plain: bytes, context: bytes) -> None:
    encrypted = KEYRING.encrypt(plain, context)
    assert is_encrypted(encrypted)
    assert key_id_of(encrypted) == "new"
    assert KEYRING.decrypt(encrypted, context) == plain


@settings(max_examples=at_least(100))
@given(plain=st.binary(max_size=40), bit=st.integers(min_value=0))
def test_a_value_with_a_single_changed_bit_is_not_decrypted(plain: bytes, bit: int) -> None:
    encrypted = bytearray(KEYRING.encrypt(plain, CONTEXT))
    bit %= len(encrypted) * 8
    encrypted[bit // 8] ^= 1 << bit % 8
    with pytest.raises((DecryptionError, ValueError)):
        KEYRING.decrypt(bytes(encrypted), CONTEXT)


@settings(max_examples=at_least(100))
@given(cut=st.integers(0, 60))
def test_a_truncated_value_is_not_decrypted(cut: int) -> None:
    encrypted = KEYRING.encrypt(b"password: canary", CONTEXT)
    with pytest.raises((DecryptionError, ValueError)):
        KEYRING.decrypt(encrypted[: min(cut, len(encrypted) - 1)], CONTEXT)


@settings(max_examples=at_least(100))
@given(context=st.binary(max_size=50).filter(lambda context: context != CONTEXT))
def test_a_value_is_not_decrypted_with_another_context(context: bytes) -> None:
    with pytest.raises(IntegrityError):
        KEYRING.decrypt(KEYRING.encrypt(b"canary", CONTEXT), context)


def test_the_plaintext_is_not_in_the_encrypted_value() -> None:
    encrypted = KEYRING.encrypt(b"canary" * 20, CONTEXT)
    assert b"canary" not in encrypted
    assert len(encrypted) < 120 + 64


def test_the_same_value_is_encrypted_differently_each_time() -> None:
    assert len({KEYRING.encrypt(b"canary", CONTEXT) for _ in range(100)}) == 100


def test_older_keys_decrypt_and_the_first_key_encrypts() -> None:
    before = Keyring([OLD], "before").encrypt(b"canary", CONTEXT)
    assert KEYRING.decrypt(before, CONTEXT) == b"canary"
    assert key_id_of(before) == "old"
    assert KEYRING.active_key_id == "new"


def test_the_error_for_an_unknown_key_names_the_key_and_its_file() -> None:
    encrypted = KEYRING.encrypt(b"canary", CONTEXT)
    with pytest.raises(UnknownKey) as caught:
        Keyring([OLD], "/data/encryption.keys").decrypt(encrypted, CONTEXT)
    assert str(caught.value) == (
        "encrypted with key new, which is not in /data/encryption.keys; restore that key from a backup"
    )


def test_another_key_with_the_same_id_does_not_decrypt() -> None:
    encrypted = KEYRING.encrypt(b"canary", CONTEXT)
    with pytest.raises(IntegrityError, match="key new in elsewhere is not the one that encrypted it"):
        Keyring([EncryptionKey("new", bytes(32))], "elsewhere").decrypt(encrypted, CONTEXT)


def test_a_value_relabelled_with_another_key_id_is_not_decrypted() -> None:
    encrypted = KEYRING.encrypt(b"canary", CONTEXT)
    with pytest.raises(IntegrityError):
        KEYRING.decrypt(encrypted.replace(b"\x03new", b"\x03old", 1), CONTEXT)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"kind":"Secret"}', b"null", b"\x00", b"\x00FLS"])
def test_json_and_fragments_are_not_recognized_as_encrypted(value: bytes) -> None:
    assert not is_encrypted(value)
    with pytest.raises(ValueError, match="not encrypted"):
        key_id_of(value)


def test_the_secret_of_a_key_is_in_no_representation() -> None:
    key = EncryptionKey("id", b"canary-canary-canary-canary-cana")
    assert "canary" not in repr(key) + str(key) + repr(Keyring([key], "here"))


@pytest.mark.parametrize("id", ["", "with space", "with/slash", "é", "x" * 33, "line\n"])
def test_an_ambiguous_key_id_is_rejected(id: str) -> None:
    with pytest.raises(ValueError, match="an id is"):
        EncryptionKey(id, bytes(32))


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_the_wrong_length_is_rejected(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        EncryptionKey("id", bytes(length))


def test_a_keyring_needs_keys_with_different_ids() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keyring([], "nowhere")
    with pytest.raises(ValueError, match="same id"):
        Keyring([NEW, EncryptionKey("new", bytes(32))], "nowhere")


def test_older_keys_are_appended_and_never_replace_newer_ones() -> None:
    other = EncryptionKey("new", bytes(32))
    both = Keyring([NEW], "file").with_fallback(Keyring([OLD, other], "before"))
    assert (both.keys, both.source) == ((NEW, OLD), "file")
