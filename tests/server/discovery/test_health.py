"""server.discovery.health: /healthz, /livez and /readyz."""

import pytest

from fairlead.core.call import Reply, RequestInfo
from fairlead.core.errors import Details, Unavailable
from fairlead.server.discovery.health import HealthCheck, HealthHandler
from tests.harness.calls import call


async def pass_check() -> None:
    return None


async def fail_check() -> None:
    raise Unavailable("the disk is full; free some space", Details(retry_after=1))


async def send_request(path: str, query: str = "", **checks: HealthCheck) -> Reply:
    return await HealthHandler(checks)(call(path, query, target=RequestInfo("get", path)))


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_a_healthy_server_replies_ok(path: str) -> None:
    reply = await send_request(path, store=pass_check)
    assert (reply.status, reply.body, reply.content_type) == (200, b"ok", "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
async def test_a_process_whose_store_fails_is_still_alive(path: str) -> None:
    assert (await send_request(path, store=fail_check)).status == 200


async def test_a_failed_check_makes_the_server_not_ready_and_is_reported() -> None:
    reply = await send_request("/readyz", store=fail_check)
    assert reply.status == 503
    assert reply.body == (b"[+]ping ok\n[-]store failed: the disk is full; free some space\nreadyz check failed\n")


async def test_one_failed_check_is_enough() -> None:
    reply = await send_request("/readyz", first=pass_check, second=fail_check, third=pass_check)
    assert reply.status == 503
    assert b"[+]first ok\n[-]second failed: " in reply.body
    assert b"[+]third ok\n" in reply.body


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=true"])
async def test_verbose_lists_the_checks(query: str) -> None:
    reply = await send_request("/readyz", query, store=pass_check)
    assert (reply.status, reply.body) == (200, b"[+]ping ok\n[+]store ok\nreadyz check passed\n")


async def test_livez_lists_no_readiness_checks() -> None:
    assert (await send_request("/livez", "verbose", store=fail_check)).body == b"[+]ping ok\nlivez check passed\n"


async def test_each_check_has_its_own_path() -> None:
    assert (await send_request("/livez/ping")).body == b"ok"
    assert (await send_request("/readyz/store", "verbose", store=pass_check, audit=fail_check)).body == b"ok"
    reply = await send_request("/readyz/store", store=fail_check)
    assert (reply.status, reply.body) == (503, b"the disk is full; free some space\n")


@pytest.mark.parametrize("path", ["/readyz/other", "/livez/store", "/readyz/", "/readyzz", "/readyz/store/"])
async def test_an_unknown_check_gets_404(path: str) -> None:
    assert (await send_request(path, store=pass_check)).status == 404


async def test_checks_can_be_excluded() -> None:
    reply = await send_request("/readyz", "exclude=store&verbose", store=fail_check, audit=pass_check)
    assert (reply.status, reply.body) == (
        200,
        b"[+]ping ok\n[+]store excluded: ok\n[+]audit ok\nreadyz check passed\n",
    )
    assert (await send_request("/readyz", "exclude=audit", store=fail_check, audit=pass_check)).status == 503


async def test_unknown_excluded_checks_are_reported() -> None:
    reply = await send_request("/readyz", "exclude=sun&exclude=moon%0A&verbose", store=pass_check)
    assert reply.status == 200
    assert b'warn: some health checks cannot be excluded: no matches for "moon\\n","sun"\n' in reply.body


async def test_every_request_runs_the_checks_again() -> None:
    is_working = True

    async def check_store() -> None:
        if not is_working:
            await fail_check()

    health = HealthHandler({"store": check_store})
    request = call("/readyz", target=RequestInfo("get", "/readyz"))
    statuses = [(await health(request)).status]
    is_working = False
    statuses.append((await health(request)).status)
    is_working = True
    statuses.append((await health(request)).status)
    assert statuses == [200, 503, 200]
