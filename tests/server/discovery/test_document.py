"""Finished documents: which variant a client gets, and what it may keep."""

import pytest

from fairlead.core.errors import NotAcceptable
from fairlead.server.discovery.document import Document, MediaTypeParams, build_reply, build_variant, find_document

LIST = MediaTypeParams("ThingList", "things.example.com", "v2")
PACKED = "application/x.packed"

PLAIN = build_variant(b"{}")
YAML = build_variant(b"a: 1\n", "application/yaml")
LISTED = build_variant(b"[]", params=LIST)
BYTES = build_variant(b"\x00", PACKED, alias="application/x@packed")

THING = Document((LISTED, PLAIN, YAML, BYTES))
NAMED = Document((PLAIN,), location=f"/root/thing?hash={PLAIN.hash}")


@pytest.mark.parametrize(
    ("accept", "body"),
    [
        ("", b"{}"),
        ("*/*", b"{}"),
        ("application/*", b"{}"),
        ("APPLICATION/JSON", b"{}"),
        ("text/html, */*;q=0.8", b"{}"),
        ("application/json;g=things.example.com;v=v2;as=ThingList,application/json", b"[]"),
        ("application/json;as=ThingList;v=v2;g=things.example.com;profile=x", b"[]"),
        ("application/json;g=things.example.com;v=v9;as=ThingList,application/json", b"{}"),
        ("application/yaml", b"a: 1\n"),
        ("application/json;q=0.5, application/yaml", b"a: 1\n"),
        ("application/yaml;q=0.5, application/json", b"{}"),
        (PACKED, b"\x00"),
        ("application/x@packed", b"\x00"),
    ],
)
def test_a_client_gets_the_variant_that_it_likes_best(accept, body):
    assert build_reply(THING, accept).body == body


def test_of_variants_that_are_liked_alike_the_first_is_sent():
    assert build_reply(THING, f"{PACKED}, application/json").body == b"{}"


@pytest.mark.parametrize("accept", ["text/csv", "application/json;as=Other;g=x;v=v1", "application/json;q=0"])
def test_an_accept_header_that_nothing_satisfies_is_refused_with_what_there_is(accept):
    with pytest.raises(NotAcceptable, match=r"application/json, application/yaml, application/x\.packed$"):
        build_reply(THING, accept)


def test_a_document_that_is_not_negotiated_is_sent_whatever_is_asked():
    reply = build_reply(Document((PLAIN,), is_negotiated=False), "text/csv")
    assert (reply.status, reply.body) == (200, b"{}")
    assert "Vary" not in dict(reply.headers)


def test_the_content_type_names_the_view():
    assert build_reply(THING, f"application/json;{LIST}").content_type == (
        "application/json;g=things.example.com;v=v2;as=ThingList"
    )
    assert build_reply(THING).content_type == "application/json"


def test_an_alias_is_answered_with_the_proper_media_type():
    assert build_reply(THING, "application/x@packed").content_type == PACKED


def test_a_negotiated_document_varies_by_accept():
    assert dict(build_reply(THING).headers)["Vary"] == "Accept"


@pytest.mark.parametrize("held", [PLAIN.etag, f'"other", {PLAIN.etag}', f"W/{PLAIN.etag}", "*"])
def test_a_client_that_has_the_content_gets_304_without_a_body(held):
    reply = build_reply(THING, "", held)
    assert (reply.status, reply.body) == (304, b"")
    assert dict(reply.headers)["ETag"] == PLAIN.etag


@pytest.mark.parametrize("held", ["", '"other"', PLAIN.hash, YAML.etag])
def test_a_client_that_has_something_else_gets_the_content(held):
    assert build_reply(THING, "", held).status == 200


def test_content_asked_for_by_its_hash_may_be_kept_for_ever():
    kept = dict(build_reply(NAMED, query={"hash": [PLAIN.hash]}).headers)["Cache-Control"]
    assert "immutable" in kept
    assert "max-age=31536000" in kept


def test_content_asked_for_by_its_path_alone_may_not_be_kept():
    assert "Cache-Control" not in dict(build_reply(NAMED).headers)


def test_an_old_hash_is_redirected_to_the_new_one():
    reply = build_reply(NAMED, query={"hash": ["OLD"]})
    assert reply.status == 301
    assert dict(reply.headers)["Location"] == f"/root/thing?hash={PLAIN.hash}"


def test_a_hash_means_nothing_where_content_is_not_named_by_it():
    reply = build_reply(THING, query={"hash": ["OLD"]})
    assert reply.status == 200
    assert "Cache-Control" not in dict(reply.headers)


def test_a_path_is_found_with_and_without_a_slash_at_its_end():
    known = {"/": THING, "/api": NAMED}
    assert find_document(known, "/api") is find_document(known, "/api/") is NAMED
    assert find_document(known, "/") is find_document(known, "") is THING
    assert find_document(known, "/api//") is find_document(known, "/nope") is None
