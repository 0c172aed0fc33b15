"""Health: alive is one thing, ready is another, and what is wrong is said."""

import pytest

from fairlead.core.call import Reply, RequestInfo
from fairlead.core.errors import Details, Unavailable
from fairlead.server.discovery.health import HealthCheck, HealthHandler
from tests.harness.calls import call


async def fine() -> None:
    return None


async def broken() -> None:
    raise Unavailable("the disk is full; free some space", Details(retry_after=1))


async def ask(path: str, query: str = "", **probes: HealthCheck) -> Reply:
    return await HealthHandler(probes)(call(path, query, target=RequestInfo("get", path)))


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_all_is_well_in_one_word(path: str) -> None:
    reply = await ask(path, store=fine)
    assert (reply.status, reply.body, reply.content_type) == (200, b"ok", "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
async def test_a_process_whose_store_fails_is_still_alive(path: str) -> None:
    assert (await ask(path, store=broken)).status == 200


async def test_it_is_not_ready_though_and_says_why() -> None:
    reply = await ask("/readyz", store=broken)
    assert reply.status == 503
    assert reply.body == (b"[+]ping ok\n[-]store failed: the disk is full; free some space\nreadyz check failed\n")


async def test_one_probe_that_fails_is_enough() -> None:
    reply = await ask("/readyz", first=fine, second=broken, third=fine)
    assert reply.status == 503
    assert b"[+]first ok\n[-]second failed: " in reply.body
    assert b"[+]third ok\n" in reply.body


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=true"])
async def test_details_are_told_on_request(query: str) -> None:
    reply = await ask("/readyz", query, store=fine)
    assert (reply.status, reply.body) == (200, b"[+]ping ok\n[+]store ok\nreadyz check passed\n")


async def test_being_alive_has_no_details() -> None:
    assert (await ask("/livez", "verbose", store=broken)).body == b"[+]ping ok\nlivez check passed\n"


async def test_a_single_check_has_a_path_of_its_own() -> None:
    assert (await ask("/livez/ping")).body == b"ok"
    assert (await ask("/readyz/store", "verbose", store=fine, audit=broken)).body == b"ok"
    reply = await ask("/readyz/store", store=broken)
    assert (reply.status, reply.body) == (503, b"the disk is full; free some space\n")


@pytest.mark.parametrize("path", ["/readyz/other", "/livez/store", "/readyz/", "/readyzz", "/readyz/store/"])
async def test_a_check_that_is_not_there_is_not_found(path: str) -> None:
    assert (await ask(path, store=fine)).status == 404


async def test_checks_can_be_left_out() -> None:
    reply = await ask("/readyz", "exclude=store&verbose", store=broken, audit=fine)
    assert (reply.status, reply.body) == (
        200,
        b"[+]ping ok\n[+]store excluded: ok\n[+]audit ok\nreadyz check passed\n",
    )
    assert (await ask("/readyz", "exclude=audit", store=broken, audit=fine)).status == 503


async def test_checks_that_cannot_be_left_out_are_named() -> None:
    reply = await ask("/readyz", "exclude=sun&exclude=moon%0A&verbose", store=fine)
    assert reply.status == 200
    assert b'warn: some health checks cannot be excluded: no matches for "moon\\n","sun"\n' in reply.body


async def test_every_call_probes_again() -> None:
    working = True

    async def now_and_then() -> None:
        if not working:
            await broken()

    health = HealthHandler({"store": now_and_then})
    asked = call("/readyz", target=RequestInfo("get", "/readyz"))
    seen = [(await health(asked)).status]
    working = False
    seen.append((await health(asked)).status)
    working = True
    seen.append((await health(asked)).status)
    assert seen == [200, 503, 200]
