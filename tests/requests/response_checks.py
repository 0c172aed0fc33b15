"""Checks that hold for every response, whatever the request."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from tests.requests.raw_http import RawRequest, RawResponse

_JSON, _YAML = "application/json", "application/yaml"


def find_faults(request: RawRequest, response: RawResponse, key: str) -> Iterator[str]:
    """Faults of a response."""
    if not response.status:
        yield f"no response: {response.body.decode()}"
        return
    if response.status >= 500 and not _needs_runner(request, response):
        yield f"a server error: {response.status} {response.body[:300]!r}"
    if response.status == 101:
        yield "the protocol was switched"
    if key.encode() in response.body or any(key in value for _, value in response.headers):
        yield "the access key is in the response"
    if response.body or response.status >= 400:
        yield from _find_body_faults(request, response)


def _needs_runner(request: RawRequest, response: RawResponse) -> bool:
    """Subresources of workspaces are served by their runner, and these have none: 503."""
    return response.status == 503 and re.search(r"/devpodworkspaceinstances/[^/?]+/", request.path) is not None


def _find_body_faults(request: RawRequest, response: RawResponse) -> Iterator[str]:
    media_type = response.header("content-type").partition(";")[0]
    is_error = response.status >= 400
    if media_type == _JSON and not (request.method == "HEAD" or response.header("content-encoding")):
        try:
            value = orjson.loads(response.body)
        except ValueError as error:
            yield f"not JSON: {error}"
            return
        yield from _find_status_faults(response, value) if is_error else ()
    elif media_type == _YAML and is_error and request.method != "HEAD":
        yield from _find_status_faults(response, yaml.load(response.body, yaml.CSafeLoader))
    elif (
        not media_type and response.body and b"Sec-WebSocket" not in response.body
    ):  # granian ends half a WebSocket handshake itself
        yield f"a body without a content type: {response.body[:100]!r}"


def _find_status_faults(response: RawResponse, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or (value.get("kind"), value.get("apiVersion")) != ("Status", "v1"):
        yield f"an error that is not a Status: {response.body[:300]!r}"
        return
    if value.get("code") != response.status:
        yield f"a Status of code {value.get('code')} in a response of {response.status}"
    if value.get("status") != "Failure" or not value.get("reason") or not value.get("message"):
        yield f"a Status without reason or message: {response.body[:300]!r}"
