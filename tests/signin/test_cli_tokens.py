"""signin.cli_tokens: redirect URIs, user codes and the forms of tokens."""

import pytest

from fairlead.authn.access_keys import Pepper
from fairlead.signin.cli_tokens import (
    USER_CODE_LETTERS,
    Binding,
    TokenValues,
    challenge_of,
    format_user_code,
    is_challenge,
    is_state,
    is_verifier,
    new_secret,
    new_user_code,
    parse_code,
    parse_loopback_uri,
    parse_refresh_token,
    parse_user_code,
)

VALUES = TokenValues(Pepper(bytes(32)))


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("http://127.0.0.1:40000/done", "127.0.0.1:40000"),
        ("http://127.0.0.1:1/", "127.0.0.1:1"),
        ("http://[::1]:65535/a/b_c-d", "[::1]:65535"),
    ],
)
def test_a_redirect_uri_is_a_loopback_address_with_a_port(uri: str, host: str) -> None:
    assert parse_loopback_uri(uri) == host


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://localhost:40000/done",
        "http://localhost.evil.example:40000/done",
        "http://127.0.0.1.evil.example:40000/done",
        "http://127.0.0.1@evil.example:40000/done",
        "http://evil.example@127.0.0.1:40000/done",
        "http://127.0.0.1:40000@evil.example/done",
        "http://127.0.0.1:40000\\@evil.example/done",
        "http://127.0.0.1\\.evil.example:40000/done",
        "http://127.0.0.1:40000#@evil.example/",
        "http://127.0.0.1:40000?@evil.example/",
        "http://127.0.0.1:40000/done?next=//evil.example",
        "http://127.0.0.1:40000/done#x",
        "http://127.0.0.1:40000/done\r\nSet-Cookie: a=b",
        "http://127.0.0.1:40000/do ne",
        "http://127.0.0.1:40000",
        "http://127.0.0.1/done",
        "http://127.0.0.1:0/done",
        "http://127.0.0.1:65536/done",
        "http://127.0.0.1:+40000/done",
        "http://127.0.0.1:\u0664\u0660\u0660\u0660\u0660/done",
        "http://127.0.0.2:40000/done",
        "http://0.0.0.0:40000/done",
        "http://127.1:40000/done",
        "http://2130706433:40000/done",
        "http://0x7f.0.0.1:40000/done",
        "http://[::ffff:127.0.0.1]:40000/done",
        "http://[::1%25eth0]:40000/done",
        "http://::1:40000/done",
        "http://[::1:40000/done",
        "https://127.0.0.1:40000/done",
        "HTTP://127.0.0.1:40000/done",
        "ftp://127.0.0.1:40000/done",
        "javascript://127.0.0.1:40000/%0aalert(1)",
        "//127.0.0.1:40000/done",
        " http://127.0.0.1:40000/done",
        "http://127.0.0.1:40000/done\n",
        "http:127.0.0.1:40000/done",
        "http:///127.0.0.1:40000/done",
        "http://127.0.0.1:40000//evil.example/%2e%2e",
        "http://127.0.0.1:40000/" + "a" * 200,
        "http://\uff11\uff12\uff17.0.0.1:40000/done",
    ],
)
def test_any_other_redirect_uri_is_refused(uri: str) -> None:
    assert parse_loopback_uri(uri) is None


def test_a_user_code_has_eight_consonants_and_is_read_as_users_type_it() -> None:
    code = new_user_code()
    assert len(code) == 8 and set(code) <= set(USER_CODE_LETTERS) and not set("AEIOUY") & set(USER_CODE_LETTERS)
    shown = format_user_code(code)
    assert len(shown) == 9 and shown[4] == "-"
    for typed in (shown, shown.lower(), code, f" {code[:2]} {code[2:]} "):
        assert parse_user_code(typed) == code


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "BCDF",
        "BCDF-GHJKL",
        "BCDF-GHJA",
        "BCDF-GHJ1",
        "x" * 1000,
        "\uff22\uff23\uff24\uff26\uff27\uff28\uff2a\uff2b",
    ],
)
def test_other_text_is_not_a_user_code(typed: str) -> None:
    assert parse_user_code(typed) is None


def test_a_refresh_token_names_its_login_and_starts_like_other_keys() -> None:
    secret = new_secret()
    text = VALUES.refresh_token("cli-alice.b-x", "uid", secret)
    token = parse_refresh_token(text)
    assert text.startswith("fairlead_rt_") and token is not None
    assert (token.name, token.secret) == ("cli-alice.b-x", secret) and VALUES.is_issued(token, "uid")
    assert not VALUES.is_issued(token, "other") and not TokenValues(Pepper(b"x" * 32)).is_issued(token, "uid")
    assert secret not in repr(token)


@pytest.mark.parametrize("text", ["", "fairlead_rt_", "a.b", "A." + "x" * 43, "../a." + "x" * 43, "a." + "x" * 44])
def test_malformed_codes_and_tokens_are_recognized(text: str) -> None:
    assert parse_code(text) is None and parse_refresh_token(text) is None


def test_digests_differ_by_purpose_and_by_what_the_login_depends_on() -> None:
    secret, binding = new_secret(), Binding("parent", "uid", 60)
    digests = [
        VALUES.refresh_digest(secret, each)
        for each in (binding, Binding("parent", "uid", 61), Binding("parent", "", 60), Binding("", "", 60))
    ]
    digests += [VALUES.code_digest(secret, "c", "u", binding), VALUES.device_digest(secret, binding)]
    assert len(set(digests)) == len(digests)


def test_the_parameters_of_pkce_have_their_forms() -> None:
    # The example of RFC 7636, appendix B.
    verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert challenge_of(verifier) == challenge and is_verifier(verifier) and is_challenge(challenge)
    assert not is_verifier("x" * 42) and not is_verifier("x" * 129) and not is_verifier("ü" * 50)
    assert not is_challenge(challenge + "=") and not is_state("short") and not is_state("x" * 129)
