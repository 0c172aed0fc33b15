"""Ten thousand nearly valid Authorization headers: none authenticates, and none harms the server (T-10, T-45).

They are generated from valid and revoked keys and sent as raw bytes: with NUL, invalid UTF-8, folded lines and more
that no library would send.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from string import ascii_letters, digits
from urllib.parse import quote

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server
from tests.requests.headers import build_bearer_header
from tests.requests.raw_http import RawConnection, RawRequest, send_requests

COUNT, CONNECTIONS, SEED = 10_000, 16, 20_260_101
REJECTED_STATUSES = (400, 401, 431)
KEYS = f"{MANAGEMENT}/apis/management.service.sh/v1/ownedaccesskeys"
COOKIE = "__Host-service_access_key"

_KEY_CHARACTERS = ascii_letters + digits + "_-.~+/="
_ODD_CHARACTERS = (
    *("\x00", "\x01", "\x7f", "\t", " ", "\r", "\n", "\r\n", "\r\n ", "\x1c", "\x85", "\xa0", "\xff", "\xc0\x80"),
    *("\u00e9", "\u0430", "\u2028", "\u200b", "\ufeff", "\uff41", "\U0001d41a"),
    *(",", ";", '"', "'", "%00", "%20", "\\", "{", "$", "*", "?", "../", "<", ":"),
)
_LOOKALIKES = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "i": "\u0456", "f": "\uff46", "_": "\uff3f", "K": "\u212a"}
_SCHEMES = (
    *("Basic", "Digest", "Token", "Negotiate", "bearer:", "Bearer,", "Bearer=", "Bearer;", "Bear", "Bearers", "", "B"),
    *("Bearer\x00", "Bearer\t", "Bearer\x0b", "\x00Bearer", "B\u0435arer", "\uff22earer", "Bearer\xa0", "X Bearer"),
)
_HEADER_TEMPLATES = (
    *("{key}", "Bearer{key}", "Bearer {key} {key}", "Bearer {key},Bearer {key}", "Bearer {key}, {key}"),
    *('Bearer "{key}"', "Bearer '{key}'", "Bearer <{key}>", "Bearer token={key}", "Bearer Bearer {key}", "Bearer"),
    *(
        "Bearer ",
        "",
        " ",
        "Bearer null",
        "Bearer undefined",
        "Bearer \r\n {key}",
        "Bearer\r\n\t{key}",
        "Bearer {key}\x00",
    ),
    *(
        "Bearer {key}\r\nAuthorization: Bearer {key}",
        "Bearer {key}\nX: y",
        "Bearer %s" % ("x" * 5000),
        "Bearer {key}==",
    ),
)

Mutation = Callable[[Random, str], str]


def replace_character(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + random.choice(_KEY_CHARACTERS) + key[at + 1 :]


def flip_bit(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + chr(ord(key[at]) ^ 1 << random.randrange(8)) + key[at + 1 :]


def drop_character(random: Random, key: str) -> str:
    at = random.randrange(len(key))
    return key[:at] + key[at + 1 :]


def insert_odd_character(random: Random, key: str) -> str:
    at = random.randrange(len(key) + 1)
    return key[:at] + random.choice(_ODD_CHARACTERS) + key[at:]


def truncate_end(random: Random, key: str) -> str:
    return key[: random.randrange(len(key))]


def truncate_start(random: Random, key: str) -> str:
    return key[random.randrange(1, len(key)) :]


def append_characters(random: Random, key: str) -> str:
    return key + "".join(random.choices(_KEY_CHARACTERS, k=random.randrange(1, 40)))


def prepend_characters(random: Random, key: str) -> str:
    return "".join(random.choices(_KEY_CHARACTERS, k=random.randrange(1, 40))) + key


def change_case(random: Random, key: str) -> str:
    return "".join(each.swapcase() if random.random() < 0.1 else each for each in key)


def swap_characters(random: Random, key: str) -> str:
    first, second = sorted(random.sample(range(len(key)), 2))
    return key[:first] + key[second] + key[first + 1 : second] + key[first] + key[second + 1 :]


def use_lookalikes(random: Random, key: str) -> str:
    return "".join(_LOOKALIKES.get(each, each) if random.random() < 0.5 else each for each in key)


def reencode_key(random: Random, key: str) -> str:
    encodings = (
        b64encode(key.encode()).decode(),
        quote(key, safe="").replace("_", "%5F"),
        key.encode().hex(),
        key[::-1],
    )
    return random.choice(encodings)


def generate_random_key(random: Random, key: str) -> str:
    return key[:9] + "".join(random.choices(ascii_letters + digits + "-_", k=len(key) - 9))


MUTATIONS: Sequence[Mutation] = (
    replace_character,
    flip_bit,
    drop_character,
    insert_odd_character,
    truncate_end,
    truncate_start,
    append_characters,
    prepend_characters,
    change_case,
    swap_characters,
    use_lookalikes,
    reencode_key,
    generate_random_key,
)


def has_valid_key(header: str, key: str) -> bool:
    """Whether a header has the key after all. Spaces and tabs around it are ignored, and a newline ends it."""
    scheme, _, token = header.partition("\n")[0].strip(" \t\r").partition(" ")
    return scheme.lower() == "bearer" and token.strip(" \t") == key


def generate_invalid_headers(random: Random, key: str) -> Iterator[str]:
    """Generates different values of the header."""
    generated = {
        each.replace("{key}", key): None for each in (*_HEADER_TEMPLATES, *(f"{scheme} {{key}}" for scheme in _SCHEMES))
    }
    while len(generated) < 2 * COUNT:
        scheme = "Bearer" if random.random() < 0.9 else random.choice((*_SCHEMES, "bearer", "BEARER"))
        generated[f"{scheme} {random.choice(MUTATIONS)(random, key)}"] = None
    return (each for each in generated if not has_valid_key(each, key))


def build_requests(key: str, revoked_keys: Iterable[str]) -> Iterator[RawRequest]:
    """Generates requests with one invalid header each, and some with another credential that is valid alone."""
    random = Random(SEED)
    invalid_headers = generate_invalid_headers(random, key)
    yield from (RawRequest("GET", CONFIGMAPS, headers=(build_bearer_header(each),)) for each in revoked_keys)
    yield RawRequest("GET", CONFIGMAPS, headers=(build_bearer_header(key), build_bearer_header(key)))
    for number in range(COUNT):
        invalid = ("Authorization", next(invalid_headers).encode().decode("latin-1"))
        others: tuple[tuple[str, str], ...] = ()
        if number % 20 == 0:
            valid = ("Cookie", f"{COOKIE}={key}"), ("X-Remote-User", "admin"), build_bearer_header(key)
            # A header that is not ASCII is dropped by the HTTP server, so the valid one of two would remain.
            others = (random.choice(valid[: 3 if invalid[1].isascii() else 2]),)
        fields = [invalid, *others]
        random.shuffle(fields)
        yield RawRequest("GET", CONFIGMAPS, headers=tuple(fields))


async def find_accepted(
    server: Server, requests: Iterable[RawRequest]
) -> list[tuple[tuple[tuple[str, str], ...], int]]:
    """Returns the headers that were not rejected, with the status of the response."""
    remaining, accepted = iter(requests), list[tuple[tuple[tuple[str, str], ...], int]]()

    async def send_remaining() -> None:
        async with RawConnection(server) as connection:
            for request in remaining:
                response = await connection.send(request)
                if response.status not in REJECTED_STATUSES:
                    accepted.append((request.headers, response.status))

    await asyncio.gather(*(send_remaining() for _ in range(CONNECTIONS)))
    return accepted


@pytest.fixture(scope="module")
def revoked_keys(shared_server: Server) -> list[str]:
    """Keys that were valid once: a disabled, a deleted and a rotated one."""
    values = []
    with shared_server.client() as client:
        for name in ("disabled", "deleted", "rotated"):
            body = {
                "apiVersion": "management.service.sh/v1",
                "kind": "OwnedAccessKey",
                "metadata": {"name": f"was-{name}"},
            }
            generated = client.post(KEYS, json=body).raise_for_status().json()
            values.append(str(generated["spec"]["key"]))
            with shared_server.client(values[-1]) as holder:
                holder.get(CONFIGMAPS).raise_for_status()
        merge = {"Content-Type": "application/merge-patch+json"}
        client.patch(f"{KEYS}/was-disabled", json={"spec": {"disabled": True}}, headers=merge).raise_for_status()
        client.delete(f"{KEYS}/was-deleted").raise_for_status()
        client.post(f"{KEYS}/was-rotated/rotate").raise_for_status()
    return values


async def test_t45_nearly_valid_authorization_headers_are_rejected(server: Server, revoked_keys: list[str]) -> None:
    async with RawConnection(server) as connection:
        assert (
            await connection.send(RawRequest("GET", CONFIGMAPS, headers=(build_bearer_header(server.key),)))
        ).status == 200
    assert await find_accepted(server, build_requests(server.key, revoked_keys)) == []


@pytest.mark.parametrize("header", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-User", "Impersonate-Extra-X"])
def test_t18_an_impersonation_header_that_is_not_ascii_gets_400(server: Server, header: str) -> None:
    impersonated = () if header == "Impersonate-User" else (("Impersonate-User", "admin"),)
    (response,) = send_requests(
        server,
        RawRequest("GET", CONFIGMAPS, headers=(build_bearer_header(server.key), *impersonated, (header, "gr\xfcn"))),
    )
    assert response.status == 400


def test_no_generated_header_has_the_valid_key(revoked_keys: list[str]) -> None:
    """Otherwise the rejections in the test above would prove nothing."""
    key = revoked_keys[0]
    generated = [request for request in build_requests(key, ()) if len(request.headers) == 1]
    assert len({request.headers for request in generated}) == len(generated) > COUNT * 0.9
    assert not any(has_valid_key(request.headers[0][1], key) for request in generated)
