"""server.discovery.document: content negotiation and caching of static documents."""

import pytest

from fairlead.core.errors import NotAcceptable
from fairlead.server.discovery.document import Document, MediaTypeParams, build_reply, build_variant, find_document

LIST = MediaTypeParams("ThingList", "things.example.com", "v2")
PACKED = "application/x.packed"

PLAIN = build_variant(b"{}")
YAML = build_variant(b"a: 1\n", "application/yaml")
AS_LIST = build_variant(b"[]", params=LIST)
PACKED_VARIANT = build_variant(b"\x00", PACKED, alias="application/x@packed")

THING = Document((AS_LIST, PLAIN, YAML, PACKED_VARIANT))
HASHED = Document((PLAIN,), location=f"/root/thing?hash={PLAIN.hash}")


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
def test_a_client_gets_the_variant_that_it_prefers(accept, body):
    assert build_reply(THING, accept).body == body


def test_of_equally_preferred_variants_the_first_is_sent():
    assert build_reply(THING, f"{PACKED}, application/json").body == b"{}"


@pytest.mark.parametrize("accept", ["text/csv", "application/json;as=Other;g=x;v=v1"])
def test_an_accept_header_without_a_match_gets_406_with_the_media_types(accept):
    with pytest.raises(NotAcceptable, match=r"application/json, application/yaml, application/x\.packed$"):
        build_reply(THING, accept)


def test_a_document_that_is_not_negotiated_ignores_the_accept_header():
    reply = build_reply(Document((PLAIN,), is_negotiated=False), "text/csv")
    assert (reply.status, reply.body) == (200, b"{}")
    assert "Vary" not in dict(reply.headers)


def test_the_content_type_has_the_media_type_parameters():
    assert build_reply(THING, f"application/json;{LIST}").content_type == (
        "application/json;g=things.example.com;v=v2;as=ThingList"
    )
    assert build_reply(THING).content_type == "application/json"


def test_an_alias_gets_the_canonical_media_type():
    assert build_reply(THING, "application/x@packed").content_type == PACKED


def test_a_negotiated_document_varies_by_accept():
    assert dict(build_reply(THING).headers)["Vary"] == "Accept"


@pytest.mark.parametrize("if_none_match", [PLAIN.etag, f'"other", {PLAIN.etag}', f"W/{PLAIN.etag}", "*"])
def test_a_matching_etag_gets_304_without_a_body(if_none_match):
    reply = build_reply(THING, "", if_none_match)
    assert (reply.status, reply.body) == (304, b"")
    assert dict(reply.headers)["ETag"] == PLAIN.etag


@pytest.mark.parametrize("if_none_match", ["", '"other"', PLAIN.hash, YAML.etag])
def test_another_etag_gets_the_content(if_none_match):
    assert build_reply(THING, "", if_none_match).status == 200


def test_content_requested_by_its_hash_is_immutable():
    cache_control = dict(build_reply(HASHED, query={"hash": [PLAIN.hash]}).headers)["Cache-Control"]
    assert "immutable" in cache_control
    assert "max-age=31536000" in cache_control


def test_content_requested_without_a_hash_must_not_be_cached():
    assert "Cache-Control" not in dict(build_reply(HASHED).headers)


def test_an_outdated_hash_is_redirected_to_the_current_one():
    reply = build_reply(HASHED, query={"hash": ["OLD"]})
    assert reply.status == 301
    assert dict(reply.headers)["Location"] == f"/root/thing?hash={PLAIN.hash}"


def test_a_hash_is_ignored_for_documents_without_a_location():
    reply = build_reply(THING, query={"hash": ["OLD"]})
    assert reply.status == 200
    assert "Cache-Control" not in dict(reply.headers)


def test_a_document_is_found_with_and_without_a_trailing_slash():
    documents = {"/": THING, "/api": HASHED}
    assert find_document(documents, "/api") is find_document(documents, "/api/") is HASHED
    assert find_document(documents, "/") is find_document(documents, "") is THING
    assert find_document(documents, "/api//") is find_document(documents, "/nope") is None
