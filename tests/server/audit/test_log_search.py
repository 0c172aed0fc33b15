"""Searches of the audit log: order, pages, filters, rotation, bounds and damaged files."""

import gzip
from datetime import timedelta
from pathlib import Path
from random import Random

import orjson
import pytest

from fairlead.core.call import DRY_RUN_ANNOTATION
from fairlead.core.errors import BadRequest, Expired
from fairlead.registry.selectors import parse_fields
from fairlead.server.audit import log_search, log_segments
from fairlead.server.audit.log_query import (
    FIELDS,
    VIRTUAL_FIELDS,
    EventQuery,
    Requester,
    build_object,
    build_query,
    query_by_id,
)
from fairlead.server.audit.log_search import decode_positions, encode_positions, find_request, parse_continue_token
from tests.server.audit.log_lines import START, LogFiles, build_line, ids

NOW = START + timedelta(hours=1)


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path)


def select(text: str, own: Requester | None = None) -> EventQuery:
    return build_query(parse_fields(text, (*FIELDS, *VIRTUAL_FIELDS)), own, NOW)


def names(*numbers: int) -> list[str]:
    return [f"id-{number}" for number in numbers]


def test_events_are_listed_newest_first_in_pages(files: LogFiles) -> None:
    files.write(*(build_line(number) for number in range(7)))
    pages = files.pages(limit=3)
    assert [ids(page) for page in pages] == [names(6, 5, 4), names(3, 2, 1), names(0)]


def test_dry_runs_can_be_selected_and_left_out(files: LogFiles) -> None:
    files.write(build_line(0), build_line(1, annotations={DRY_RUN_ANNOTATION: "All"}), build_line(2))
    assert ids(files.page(select("dryRun=All"))) == names(1)
    assert ids(files.page(select("dryRun!=All"))) == names(2, 0)


def test_a_log_without_events_is_an_empty_page(files: LogFiles) -> None:
    assert [ids(page) for page in files.pages()] == [[]]


def test_pages_stay_stable_while_events_arrive_and_files_are_rotated_and_compressed(files: LogFiles) -> None:
    files.write(*(build_line(number) for number in range(6)))
    first = files.page(limit=2)
    files.write(build_line(6))
    rotated = files.rotate(100)
    files.write(build_line(7))
    assert first.next_page is not None
    second = files.page(limit=2, token=first.next_page.encode())
    files.compress(rotated)
    assert second.next_page is not None
    third = files.page(limit=2, token=second.next_page.encode())
    assert ids(first, second, third) == names(5, 4, 3, 2, 1, 0)
    assert first.snapshot == second.snapshot == third.snapshot
    assert ids(files.page()) == names(7, 6, 5, 4, 3, 2, 1, 0)


def test_rotated_and_compressed_files_are_searched(files: LogFiles) -> None:
    files.write(build_line(0), build_line(1))
    files.rotate(10, compress=True)
    files.write(build_line(20))
    files.rotate(30)
    files.write(build_line(40))
    assert ids(files.page()) == names(40, 20, 1, 0)
    assert [ids(page) for page in files.pages(limit=1)][:4] == [names(40), names(20), names(1), names(0)]


def test_a_compressed_file_larger_than_its_window_is_read_in_windows(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", 2_000)
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 512)
    files.write(*(build_line(number) for number in range(50)))
    files.rotate(100, compress=True)
    assert ids(*files.pages(limit=7)) == names(*reversed(range(50)))


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", 2_000)
    monkeypatch.setattr(log_segments, "PACKED_BYTES", 64)
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 500)


@pytest.mark.usefixtures("small_windows")
def test_searching_a_compressed_file_decompresses_it_twice_and_not_once_for_each_window(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_segments, "DECOMPRESSION_DISCOUNT", 1)
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 20_000)
    lines = [build_line(number) for number in range(400)]  # about fifty windows
    files.write(*lines)
    files.rotate(1_000, compress=True)
    pages = files.pages(select("responseStatus.code=409"))
    # The first page has decompressed the file once, to its last window. All pages together do so once more.
    assert len(pages) <= 2 + 3 * sum(map(len, lines)) / 20_000


@pytest.mark.usefixtures("small_windows")
def test_a_compressed_file_that_was_compressed_again_is_read_from_its_beginning(files: LogFiles) -> None:
    files.write(*(build_line(number) for number in range(100)))
    packed = files.rotate(1_000, compress=True)
    assert ids(*files.pages(limit=30)) == names(*reversed(range(100)))
    packed.write_bytes(gzip.compress(gzip.decompress(packed.read_bytes()), compresslevel=1))
    assert ids(*files.pages(limit=30)) == names(*reversed(range(100)))


@pytest.mark.usefixtures("small_windows")
def test_compressed_files_have_checkpoints_of_their_own(files: LogFiles) -> None:
    for start in (0, 100, 200):
        files.write(*(build_line(number) for number in range(start, start + 100)))
        files.rotate(start + 150, compress=True)
    for _ in range(2):
        assert ids(*files.pages(limit=70)) == names(*reversed(range(300)))


@pytest.mark.usefixtures("small_windows")
def test_only_so_many_checkpoints_are_kept(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "MAX_CHECKPOINTS", 3)
    few = LogFiles(files.folder)
    few.write(*(build_line(number) for number in range(200)))
    few.rotate(1_000, compress=True)
    assert ids(*few.pages(limit=30)) == names(*reversed(range(200)))
    assert len(few.logs[0]._checkpoints) <= 3


@pytest.mark.parametrize("block", [1, 7, 64, 1_000])
def test_lines_are_found_whatever_the_size_of_the_blocks(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", block)
    files.write(*(build_line(number) for number in range(5)))
    assert ids(files.page()) == names(4, 3, 2, 1, 0)


def test_the_three_logs_are_merged_by_time(files: LogFiles) -> None:
    files.write(build_line(1), build_line(4))
    files.write(build_line(2), build_line(5), log=1)
    files.write(build_line(3), log=2)
    assert ids(*files.pages(limit=2)) == names(5, 4, 3, 2, 1)
    assert ids(files.page(select("log=unauthenticated"))) == names(5, 2)
    assert ids(files.page(select("log!=agents"))) == names(5, 4, 2, 1)


def test_a_request_is_listed_once_with_its_latest_stage(files: LogFiles) -> None:
    started = build_line(1, stage="ResponseStarted", auditID="stream")
    ended = build_line(9, auditID="stream", received=1)
    files.write(started, build_line(2), build_line(3), build_line(4, stage="ResponseStarted", auditID="open"), ended)
    assert ids(files.page()) == ["stream", "open", "id-3", "id-2"]
    assert orjson.loads(files.page().lines[0])["stage"] == "ResponseComplete"


def test_an_earlier_stage_on_a_later_page_is_left_out(files: LogFiles) -> None:
    started = build_line(1, stage="ResponseStarted", auditID="stream")
    files.write(started, *(build_line(number) for number in range(2, 6)), build_line(9, auditID="stream", received=1))
    assert ids(*files.pages(limit=1)) == ["stream", *names(5, 4, 3, 2)]


def test_a_continue_token_has_a_bounded_number_of_open_requests(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_OPEN_REQUESTS", 5)
    files.write(build_line(0), *(build_line(number, received=0) for number in range(1, 40)))
    page = files.page(limit=30)
    assert page.next_page is not None
    assert len(page.next_page.open_requests) == 5


FILTERED = {
    "user.username=bob": [2],
    "user.username!=bob": [3, 1, 0],
    "verb=delete": [3],
    "verb=delete,user.username=bob": [],
    "objectRef.resource=secrets": [3],
    "objectRef.namespace=demo": [3],
    "objectRef.name=s": [3],
    "objectRef.apiGroup=apps": [1],
    "objectRef.apiGroup=,objectRef.resource!=": [3],
    "responseStatus.code=403": [2],
    "responseStatus.code!=200": [2],
    "decision=forbid": [2],
    "decision!=forbid": [3, 1, 0],
    "refusedBy!=": [2],
    "refusedBy=authorization": [2],
    "metadata.name=id-1": [1],
    "since=2026-01-02T03:00:02Z": [3, 2],
    "until=2026-01-02T03:00:01Z": [1, 0],
    "since=2026-01-02T03:00:01Z,until=2026-01-02T04:00:02+01:00": [2, 1],
    "since=59m58s": [3, 2],
    "since=2d": [3, 2, 1, 0],
}


@pytest.mark.parametrize("selector", FILTERED)
def test_field_selectors_select_events(files: LogFiles, selector: str) -> None:
    denied = {"authorization.k8s.io/decision": "forbid"}
    files.write(
        build_line(0),
        build_line(1, objectRef={"resource": "deployments", "apiGroup": "apps"}),
        build_line(2, user={"username": "bob"}, responseStatus={"code": 403}, annotations=denied),
        build_line(3, verb="delete", objectRef={"resource": "secrets", "namespace": "demo", "name": "s"}),
    )
    assert ids(files.page(select(selector))) == names(*FILTERED[selector])


REFUSALS: tuple[tuple[int, dict[str, str], str], ...] = (
    (401, {}, "authentication"),
    (403, {"authorization.k8s.io/decision": "forbid"}, "authorization"),
    (403, {"authorization.k8s.io/decision": "allow"}, "unknown"),
    (403, {"authorization.k8s.io/decision": "allow", "service.sh/refused-by": "quota"}, "quota"),
    (404, {"authorization.k8s.io/decision": "allow"}, ""),
    (101, {"authorization.k8s.io/decision": "allow", "service.sh/refused-by": "authorization"}, "authorization"),
)
"""Code and annotations of events, also of versions that do not note what refused a request, and what did."""


@pytest.mark.parametrize(("code", "annotations", "refused_by"), REFUSALS)
def test_refused_requests_are_found_also_in_events_of_earlier_versions(
    files: LogFiles, code: int, annotations: dict[str, str], refused_by: str
) -> None:
    files.write(build_line(0, responseStatus={"code": code}, annotations=annotations))
    assert ids(files.page(select(f"refusedBy={refused_by}"))) == names(0)
    assert ids(files.page(select("refusedBy!="))) == (names(0) if refused_by else [])


@pytest.mark.parametrize("selector", ["since=soon", "since=", "since!=1h", "since=1h,since=2h", "until=999999d"])
def test_an_invalid_time_is_rejected(selector: str) -> None:
    with pytest.raises(BadRequest, match=r"since|until"):
        select(selector)


def test_own_events_are_those_of_the_same_name_and_uid_in_the_log_of_users(files: LogFiles) -> None:
    alice = {"username": "alice", "uid": "u-alice"}
    files.write(
        build_line(0),
        build_line(1, user={"username": "alice", "uid": "u-former-alice"}),
        build_line(2, user={"username": "bob", "uid": "u-bob"}, impersonatedUser=alice),
        build_line(3, user={"username": "alice"}),
        build_line(4, impersonatedUser={"username": "bob"}),
    )
    files.write(build_line(5), log=2)
    files.write(build_line(6, user={}), log=1)
    own = Requester("alice", "u-alice")
    assert ids(files.page(select("", own))) == names(4, 0)
    assert ids(files.page(select("user.username=bob", own))) == []
    assert ids(files.page(select("log=agents", own))) == []


def test_files_outside_of_the_time_range_are_not_opened(files: LogFiles) -> None:
    for start in (0, 10_000, 20_000):
        files.write(build_line(start))
        files.rotate(start + 9_000).write_bytes(build_line(start) + b"not json\n")
    files.write(build_line(30_000), b"not json\n")
    middle = build_query(
        parse_fields("since=2026-01-02T05:31:00Z,until=2026-01-02T06:00:00Z", VIRTUAL_FIELDS), None, NOW
    )
    page = files.page(middle)
    assert (ids(page), page.unreadable, page.next_page) == (names(10_000), 1, None)


def test_damaged_lines_are_skipped_and_counted(files: LogFiles) -> None:
    files.write(build_line(0), b"not json\n", b"[]\n", b"\xff\xfe\n", b'{"auditID":1}\n', b"\n", build_line(1))
    page = files.page()
    assert (ids(page), page.unreadable) == (names(1, 0), 4)


@pytest.mark.parametrize("damaged", [b"not json\n", build_line(50)[:90] + b"\n", b"\xff\xfe\n", b'}{"x":1}\n'])
def test_damaged_lines_are_also_counted_where_no_line_has_the_text_that_is_searched(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    files.write(
        build_line(0, user={"username": "bob"}),
        *(build_line(number) for number in range(1, 50)),
        damaged,
        *(build_line(number) for number in range(51, 100)),
    )
    page = files.page(select("user.username=bob"))
    assert (ids(page), page.unreadable) == (names(0), 1)


def test_a_search_for_a_text_reads_no_further_than_the_last_line_of_its_page(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 5_000)
    monkeypatch.setattr(log_search, "MAX_LOOKUP_BYTES", 5_000)
    files.write(
        build_line(0, user={"username": "bob"}),
        *(build_line(number) for number in range(1, 100)),
        build_line(100, user={"username": "bob"}),
    )
    end = files.page().snapshot[0].offset
    page = files.page(select("user.username=bob"), limit=1)
    assert (ids(page), page.next_page is not None) == (names(100), True)
    assert page.next_page is not None
    assert page.next_page.positions[0].offset == end - len(build_line(100, user={"username": "bob"}))
    reads: list[int] = []
    read_plain = log_segments._read_plain

    def count_reads(descriptor: int, budget: log_segments.ScanBudget, offset: int, count: int) -> bytes:
        reads.append(count)
        return read_plain(descriptor, budget, offset, count)

    monkeypatch.setattr(log_segments, "_read_plain", count_reads)
    query = query_by_id("id-100", None)
    assert query is not None
    assert ids(find_request(files.logs, query)[0]) == names(100)
    assert sum(reads) <= 3_000


def test_the_newest_event_is_first_also_if_the_search_of_another_log_takes_several_pages(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 3_000)
    bob = {"username": "bob"}
    files.write(
        build_line(0, user=bob),
        *(build_line(number) for number in range(1, 50)),
        build_line(51, user=bob),
        *(build_line(number) for number in range(52, 100)),
    )
    files.write(build_line(1, user=bob), build_line(50, user=bob), log=1)
    pages = files.pages(select("user.username=bob"))
    assert ids(*pages) == names(51, 50, 1, 0)
    assert len(pages) > 2


def test_each_page_gets_further_in_each_log_even_if_one_block_is_more_than_it_may_search(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 100)
    for log in range(3):
        files.write(*(build_line(number, user={"username": "bob"}) for number in range(log, 30, 3)), log=log)
    page = files.page(select("user.username=bob"))
    found = ids(page)
    for _ in range(200):
        if page.next_page is None:
            break
        page = files.page(select("user.username=bob"), token=page.next_page.encode())
        found += ids(page)
    assert found == names(*reversed(range(30)))


CONSTANT = {
    "user.username=bob": "bob",
    "user.username!=bob": "",
    "objectRef.resource=secrets,user.username=bob": "bob",
    "user.username=bob,objectRef.name=s": "s",
    "auditID=id-1,verb=get": "id-1",
    "user.username=b\u00f6b,verb=get": "get",
    "objectRef.name=": "",
    "stage=ResponseStarted": "",
    "responseStatus.code=403,decision=forbid,refusedBy=authorization,dryRun=All,log=agents": "",
}
"""Selectors, and the text for which lines are searched before they are decoded."""


@pytest.mark.parametrize("selector", CONSTANT)
def test_lines_are_only_skipped_for_a_text_that_each_line_of_a_request_has(selector: str) -> None:
    text = CONSTANT[selector]
    assert select(selector).needle == (f'"{text}"'.encode() if text else b"")


def test_a_search_for_a_text_does_not_take_an_early_stage_for_the_latest(files: LogFiles) -> None:
    secret = {"resource": "secrets", "name": "s"}
    files.write(
        build_line(1, stage="ResponseStarted", auditID="stream", objectRef=secret),
        build_line(2),
        build_line(3, auditID="stream", received=1, objectRef=secret),
    )
    page = files.page(select("objectRef.name=s"))
    assert [orjson.loads(line)["stage"] for line in page.lines] == ["ResponseComplete"]
    assert files.page(select("objectRef.name=s,stage=ResponseStarted")).lines == []


def test_a_line_that_is_still_written_is_not_listed_yet(files: LogFiles) -> None:
    files.write(build_line(0), build_line(1)[:40])
    page = files.page()
    assert (ids(page), page.unreadable) == (names(0), 0)


def test_a_damaged_compressed_file_is_counted_and_the_others_are_searched(files: LogFiles) -> None:
    files.write(build_line(0))
    files.rotate(5)
    files.write(*(build_line(number, userAgent=Random(number).randbytes(900).hex()) for number in range(10, 40)))
    packed = files.rotate(50, compress=True)
    content = packed.read_bytes()
    packed.write_bytes(content[: len(content) // 2] + content[-4:])
    files.write(build_line(60))
    page = files.page()
    assert (ids(page), page.unreadable) == (names(60, 0), 1)


def test_a_line_that_is_too_long_is_skipped(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 100)
    monkeypatch.setattr(log_segments, "MAX_LINE_BYTES", 1_000)
    files.write(build_line(0), build_line(1, userAgent="x" * 5_000), build_line(2))
    page = files.page()
    assert (ids(page), page.unreadable) == (names(2, 0), 1)


def test_a_page_searches_a_bounded_number_of_bytes_and_continues(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 5_000)
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    files.write(build_line(0, responseStatus={"code": 409}), *(build_line(number) for number in range(1, 100)))
    pages = files.pages(select("responseStatus.code=409"))
    assert ids(*pages) == names(0)
    assert len(pages) > 3
    assert ids(pages[0]) == []


def test_a_file_without_line_breaks_does_not_stop_a_search(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 5_000)
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(log_segments, "MAX_LINE_BYTES", 2_000)
    files.write(build_line(0), bytes(20_000), b"\n", build_line(1))
    pages = files.pages()
    assert ids(*pages) == names(1, 0)
    assert 3 < len(pages) < 10


def test_the_size_of_a_page_is_bounded(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "MAX_PAGE_BYTES", 1_000)
    files.write(*(build_line(number, userAgent="x" * 600) for number in range(4)))
    assert [ids(page) for page in files.pages()][:2] == [names(3, 2), names(1, 0)]


@pytest.mark.parametrize("token", ["x", "!!", "W10=", "bnVsbA==", "WyIiLCIiLCIiXQ==", "WzEsMiwzXQ=="])
def test_an_invalid_continue_token_is_rejected(token: str) -> None:
    with pytest.raises(BadRequest, match="invalid continue token"):
        parse_continue_token(token)


def test_a_position_in_a_file_that_was_removed_has_expired(files: LogFiles) -> None:
    files.write(build_line(0), build_line(1))
    page = files.page(limit=1)
    files.rotate(5).unlink()
    files.write(build_line(10))
    assert page.next_page is not None
    with pytest.raises(Expired, match="another replica"):
        files.page(token=page.next_page.encode())


def test_positions_are_encoded_and_decoded(files: LogFiles) -> None:
    files.write(build_line(0))
    positions = files.page().snapshot
    assert decode_positions(encode_positions(positions)) == positions
    assert decode_positions("12") is decode_positions("ä") is None


def test_one_request_is_found_by_its_id_with_its_latest_stage(files: LogFiles) -> None:
    files.write(build_line(1, stage="ResponseStarted", auditID="stream"), build_line(2))
    files.rotate(3, compress=True)
    files.write(build_line(4, auditID="stream"), build_line(5))
    files.write(build_line(6), log=1)
    for wanted, second in (("stream", 4), ("id-2", 2), ("id-6", 6)):
        query = query_by_id(wanted, None)
        assert query is not None
        page, is_complete = find_request(files.logs, query)
        assert is_complete
        assert orjson.loads(page.lines[0])["stageTimestamp"].startswith(f"2026-01-02T03:00:0{second}")


@pytest.mark.parametrize("block", [50, 1_000, 100_000])
def test_each_request_is_found_by_its_id_and_by_its_user_whatever_the_size_of_the_blocks(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", block)
    users = [{"username": "bob" if number % 9 == 4 else "alice", "uid": "u"} for number in range(40)]
    files.write(*(build_line(number, user=user) for number, user in enumerate(users)))
    for number in range(40):
        query = query_by_id(f"id-{number}", None)
        assert query is not None
        assert ids(find_request(files.logs, query)[0]) == names(number)
    own = select("", Requester("bob", "u"))
    assert ids(*files.pages(own, limit=2)) == names(31, 22, 13, 4)


def test_an_event_of_another_user_is_not_found_by_its_id(files: LogFiles) -> None:
    files.write(build_line(1), build_line(2, user={"username": "bob", "uid": "u-bob"}))
    query = query_by_id("id-2", Requester("alice", "u-alice"))
    assert query is not None
    assert find_request(files.logs, query)[0].lines == []


def test_a_lookup_says_when_it_has_not_searched_everything(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "MAX_LOOKUP_BYTES", 2_000)
    monkeypatch.setattr(log_segments, "BLOCK_BYTES", 500)
    files.write(*(build_line(number) for number in range(50)))
    query = query_by_id("id-0", None)
    assert query is not None
    page, is_complete = find_request(files.logs, query)
    assert (page.lines, is_complete) == ([], False)
    assert query_by_id('x"', None) is None


def test_an_object_has_no_bodies(files: LogFiles) -> None:
    line = build_line(1, requestObject={"data": "secret"}, responseObject={"data": "secret"}, extra="secret")
    built = build_object(line, "management.service.sh/v1", "7")
    assert "secret" not in str(built)
    assert built["metadata"] == {
        "name": "id-1",
        "creationTimestamp": "2026-01-02T03:00:01Z",
        "resourceVersion": "7",
    }
