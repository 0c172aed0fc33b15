"""What every answer must be, whatever was asked."""

from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from tests.security.raw_http import Answer, Ask

_JSON, _YAML = "application/json", "application/yaml"


def faults(ask: Ask, answer: Answer, key: str) -> Iterator[str]:
    """What is wrong with an answer; nothing, as a rule."""
    if not answer.status:
        yield f"no answer: {answer.body.decode()}"
        return
    if answer.status >= 500:
        yield f"a server error: {answer.status} {answer.body[:300]!r}"
    if answer.status == 101:
        yield "the protocol was switched"
    if key.encode() in answer.body or any(key in value for _, value in answer.headers):
        yield "the access key is in the answer"
    if answer.body or answer.status >= 400:
        yield from _body_faults(ask, answer)


def _body_faults(ask: Ask, answer: Answer) -> Iterator[str]:
    media_type = answer.header("content-type").partition(";")[0]
    is_error = answer.status >= 400
    if media_type == _JSON and not (ask.method == "HEAD" or answer.header("content-encoding")):
        try:
            value = orjson.loads(answer.body)
        except ValueError as error:
            yield f"no JSON: {error}"
            return
        yield from _status_faults(answer, value) if is_error else ()
    elif media_type == _YAML and is_error and ask.method != "HEAD":
        yield from _status_faults(answer, yaml.load(answer.body, yaml.CSafeLoader))
    elif not media_type and answer.body and b"Sec-WebSocket" not in answer.body:  # half a handshake ends in granian
        yield f"a body without a type: {answer.body[:100]!r}"


def _status_faults(answer: Answer, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or (value.get("kind"), value.get("apiVersion")) != ("Status", "v1"):
        yield f"an error that is no Status: {answer.body[:300]!r}"
        return
    if value.get("code") != answer.status:
        yield f"a Status of code {value.get('code')} in an answer of {answer.status}"
    if value.get("status") != "Failure" or not value.get("reason") or not value.get("message"):
        yield f"a Status without reason or message: {answer.body[:300]!r}"
