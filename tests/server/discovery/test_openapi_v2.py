"""server.discovery.openapi_v2: the content of OpenAPI v3 as Swagger 2.0, in JSON and protobuf."""

import json
import struct
from collections.abc import Iterator
from typing import Any

from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog, Kind, Sensitivity
from fairlead.registry.schema import array, enum, integer, mapping, obj, open_object, string
from fairlead.server.discovery.document import build_reply
from fairlead.server.discovery.documents import build_documents
from fairlead.server.discovery.openapi_v2 import encode_swagger

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

OPEN = {**open_object("Any fields, some of them known."), "properties": {"known": string("Known.")}}
SPEC = obj(
    "The desired state.",
    required=("size",),
    size=integer("The size.", minimum=-1, default=3),
    where=array(enum("A place.", "here", "there"), "Places."),
    labels=mapping(string(), "Labels."),
    open=OPEN,
)
APP = Kind("App", "apps", False, {"spec": SPEC}, "An app.", sensitivity=Sensitivity.NORMAL)
NAMESPACE = Kind("Namespace", "namespaces", False, {}, "A namespace.", group="", sensitivity=Sensitivity.NORMAL)

DOCUMENT = build_documents(Catalog((APP, NAMESPACE)), "/mount", version="0.1.0")["/openapi/v2"]
SWAGGER = json.loads(build_reply(DOCUMENT).body)
APP_NAME = "sh.service.management.v1.App"
APP_PATH = "/apis/management.service.sh/v1/apps/{name}"


def test_one_document_has_the_paths_and_schemas_of_all_groups():
    assert (SWAGGER["swagger"], SWAGGER["basePath"]) == ("2.0", "/mount")
    assert SWAGGER["info"] == {"title": "Fairlead", "version": "0.1.0"}
    assert {APP_PATH, "/api/v1/namespaces/{name}"} <= SWAGGER["paths"].keys()
    assert {APP_NAME, f"{APP_NAME}List", "io.k8s.api.core.v1.Namespace"} <= SWAGGER["definitions"].keys()


def test_a_definition_names_its_kind():
    expected = {"group": "management.service.sh", "version": "v1", "kind": "App"}
    assert SWAGGER["definitions"][APP_NAME]["x-kubernetes-group-version-kind"] == [expected]


def test_a_reference_is_next_to_its_description():
    assert SWAGGER["definitions"][APP_NAME]["properties"]["metadata"] == {
        "description": "Standard object metadata.",
        "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    }


def test_bodies_become_parameters_and_media_types_become_lists():
    patch = SWAGGER["paths"][APP_PATH]["patch"]
    assert patch["consumes"] == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert patch["produces"] == ["application/json", "application/yaml"]
    body = next(parameter for parameter in patch["parameters"] if parameter["in"] == "body")
    assert body["required"] is True
    assert body["schema"]["$ref"].startswith("#/definitions/")
    assert {"name": "fieldValidation", "type": "string"}.items() <= patch["parameters"][2].items()
    assert patch["responses"]["200"]["schema"] == {"$ref": f"#/definitions/{APP_NAME}"}


def test_an_open_object_lists_no_fields_so_that_old_kubectl_accepts_any():
    spec = SWAGGER["definitions"][APP_NAME]["properties"]["spec"]
    assert "properties" not in spec["properties"]["open"]
    assert spec["properties"]["size"]["minimum"] == -1


def test_no_v3_constructs_are_left():
    product = build_reply(build_documents(Catalog(KINDS))["/openapi/v2"]).body
    assert b"#/components/" not in product
    for item in json.loads(product)["paths"].values():
        for operation in (value for value in item.values() if isinstance(value, dict)):
            assert "requestBody" not in operation
            assert not any("content" in value for value in operation["responses"].values())
            assert not any("schema" in value for value in operation["parameters"] if value["in"] != "body")


def test_every_reference_has_a_definition():
    product = json.loads(build_reply(build_documents(Catalog(KINDS))["/openapi/v2"]).body)
    text = json.dumps(product)
    references = {part.partition('"')[0] for part in text.split('"$ref": "#/definitions/')[1:]}
    assert references
    assert references <= product["definitions"].keys()


def test_a_client_that_accepts_json_gets_json_even_if_protobuf_is_first():
    assert build_reply(DOCUMENT, f"{PROTOBUF}, application/json").content_type == "application/json"
    assert build_reply(DOCUMENT, "*/*").content_type == "application/json"


def test_protobuf_has_a_media_type_that_go_can_parse():
    reply = build_reply(DOCUMENT, PROTOBUF)
    assert reply.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert reply.body == encode_swagger(SWAGGER)


# --- a parser of the protobuf wire format: messages as {field number: [values]} ---


def iterate_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    position = 0

    def read_varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        number, wire_type = divmod(read_varint(), 8)
        if wire_type == 0:
            yield number, read_varint()
        elif wire_type == 1:
            yield number, struct.unpack("<d", message[position : position + 8])[0]
            position += 8
        else:
            assert wire_type == 2
            length = read_varint()
            assert position + length <= len(message)
            yield number, message[position : position + length]
            position += length


def parse_message(message: bytes) -> dict[int, list[Any]]:
    fields_by_number: dict[int, list[Any]] = {}
    for number, value in iterate_fields(message):
        fields_by_number.setdefault(number, []).append(value)
    return fields_by_number


def parse_map(message: bytes, number: int = 1) -> dict[str, bytes]:
    """A map: entries with the key in field 1 and the value in field 2."""
    return {pair[1][0].decode(): pair[2][0] for pair in map(parse_message, parse_message(message).get(number, []))}


def encode_schema(**schema: Any) -> dict[int, list[Any]]:
    encoded = encode_swagger({"definitions": {"X": schema}})
    return parse_message(parse_map(parse_message(encoded)[9][0])["X"])


def test_the_protobuf_document_has_the_same_paths_and_definitions():
    document = parse_message(encode_swagger(SWAGGER))
    assert (document[1], document[4]) == ([b"2.0"], [b"/mount"])
    assert parse_message(document[2][0]) == {1: [b"Fairlead"], 2: [b"0.1.0"]}
    assert parse_map(document[8][0], 2).keys() == SWAGGER["paths"].keys()
    assert parse_map(document[9][0]).keys() == SWAGGER["definitions"].keys()


def test_an_encoded_operation_has_its_parameters_and_its_kind():
    item = parse_message(parse_map(parse_message(encode_swagger(SWAGGER))[8][0], 2)[APP_PATH])
    patch = parse_message(item[8][0])
    parameters = [parse_message(parse_message(parameter)[1][0]) for parameter in patch[8]]
    query = [parse_message(parse_message(parameter[2][0])[3][0]) for parameter in parameters if 2 in parameter]
    assert b"fieldValidation" in [parameter[4][0] for parameter in query]
    assert [parse_message(parameter[1][0])[3] for parameter in parameters if 1 in parameter] == [[b"body"]]
    path_parameter = parse_message(parse_message(parse_message(parse_message(item[9][0])[1][0])[2][0])[4][0])
    assert (path_parameter[4], path_parameter[1]) == ([b"name"], [1])
    extensions = {pair[1][0]: parse_message(pair[2][0])[2][0] for pair in map(parse_message, patch[13])}
    assert json.loads(extensions[b"x-kubernetes-group-version-kind"])["kind"] == "App"
    assert extensions[b"x-kubernetes-action"] == b'"patch"'


def test_an_encoded_response_has_its_schema():
    get = parse_message(parse_message(parse_map(parse_message(encode_swagger(SWAGGER))[8][0], 2)[APP_PATH])[2][0])
    response = parse_message(parse_message(parse_map(get[9][0])["200"])[1][0])
    assert response[1] == [b"OK"]
    assert parse_message(parse_message(response[2][0])[1][0]) == {1: [f"#/definitions/{APP_NAME}".encode()]}


def test_an_encoded_schema_keeps_its_content():
    encoded = encode_schema(**SPEC)
    assert encoded[4] == [b"The desired state."]
    assert encoded[19] == [b"size"]
    assert parse_message(encoded[22][0]) == {1: [b"object"]}
    properties = parse_map(encoded[25][0])
    size, where, labels = (
        parse_message(properties["size"]),
        parse_message(properties["where"]),
        parse_message(properties["labels"]),
    )
    assert size[9] == [-1.0]
    assert parse_message(size[5][0]) == {2: [b"3"]}
    allowed_values = parse_message(parse_message(where[23][0])[1][0])
    assert [parse_message(value)[2][0] for value in allowed_values[20]] == [b'"here"', b'"there"']
    assert parse_message(parse_message(parse_message(labels[21][0])[1][0])[22][0]) == {1: [b"string"]}


def test_numbers_and_booleans_are_encoded_by_their_types():
    encoded = encode_schema(minLength=300, maximum=1.5, uniqueItems=True, additionalProperties=False, minItems=-1)
    assert encoded[12] == [300]
    assert encoded[7] == [1.5]
    assert encoded[16] == [1]
    assert parse_message(encoded[21][0]) == {2: [0]}
    assert encoded[15] == [2**64 - 1]


def test_text_that_is_not_ascii_is_preserved():
    assert encode_schema(description="größer · 大")[4][0].decode() == "größer · 大"
