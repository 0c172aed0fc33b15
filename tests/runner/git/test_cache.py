"""The protocol of `git credential-cache`, with requests as git 2.39 sends them, and hostile ones."""

import pytest

from fairlead.runner.git.cache import CredentialRequest, InvalidRequest, format_response, parse_request

AS_SENT = b"action=get\ntimeout=900\nprotocol=https\nhost=h:1\npath=a/b\n\n"
REQUEST = CredentialRequest("get", "https", "h:1", "a/b")


def test_a_request_of_git_is_read() -> None:
    assert parse_request(AS_SENT) == REQUEST
    newer = AS_SENT.replace(b"\n\n", b"\nwwwauth[]=Basic\nwwwauth[]=Bearer\nusername=ada\n\n")
    assert parse_request(newer) == CredentialRequest("get", "https", "h:1", "a/b", "ada")
    assert parse_request(b"action=get\nhost=[::1]:8443\n").host == "[::1]:8443"


@pytest.mark.parametrize(
    ("request_bytes", "message"),
    [
        (b"", "no valid host"),
        (b"action=get\nprotocol=https\nhost=\n\n", "no valid host"),
        (b"action=get\nprotocol=https\nhost=evil.example.com?\n\n", "no valid host"),
        (b"action=get\nprotocol=https\nhost=a/b\n\n", "no valid host"),
        (b"action=get\nprotocol=https\nhost=a\rb\n\n", "no valid host"),
        (b"action=get\nprotocol=https\nhost=" + b"a" * 254 + b"\n\n", "no valid host"),
        (b"action=get\nprotocol=https\nhost=evil.example.com\nhost=example.com\n\n", "second one of the same name"),
        (b"action=get\nprotocol=http\nprotocol=https\nhost=example.com\n\n", "second one of the same name"),
        (b"action=get\nhost\n", "no field"),
        (b"action=get\nurl=https://example.com\nhost=example.com\n", "a URL"),
        (b"action=get\nhost=example.com\npath=a\x00b\n", "field path has characters"),
        (b"action=get\nhost=example.com\nusername=\xff\n", "field username has characters"),
        (b"x[]=1\n" * 65, "more than 64 lines"),
        (b"action=get\nhost=example.com\npath=" + b"a" * 16384, "more than 16384 bytes"),
    ],
)
def test_what_git_would_not_say_is_refused(request_bytes: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_request(request_bytes)


def test_a_response_is_for_the_user_that_git_asks_for() -> None:
    assert format_response(REQUEST, "ada", "t") == b"username=ada\npassword=t\n"
    assert format_response(REQUEST, "", "t") == b"username=git\npassword=t\n"
    as_bob = CredentialRequest("get", "https", "h", user="bob")
    assert format_response(as_bob, "", "t") == b"username=bob\npassword=t\n"
    assert format_response(as_bob, "ada", "t") == b""


@pytest.mark.parametrize(("user", "password"), [("ada", ""), ("a\nb", "t"), ("ada", "t\nquit=1"), ("ada", "t\0")])
def test_what_cannot_be_said_in_a_line_is_not_sent(user: str, password: str) -> None:
    assert format_response(REQUEST, user, password) == b""
