"""Tests of `core/log.py`: JSON lines, columns for terminals, and lines of libraries in the same form."""

import io
import json
import logging

import pytest
import structlog

from fairlead.core.log import configure_logging

pytestmark = pytest.mark.usefixtures("restored_logging")


def read_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    structlog.get_logger().info("ready", url="https://127.0.0.1:8443")
    (line,) = read_lines(stream)
    assert (line["event"], line["level"], line["url"]) == ("ready", "info", "https://127.0.0.1:8443")
    assert str(line["timestamp"]).endswith("Z")


def test_values_that_are_not_json_are_still_written() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    structlog.get_logger().info("odd", value={1: {2}})
    assert read_lines(stream)[0]["value"] == {"1": "{2}"}


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    logging.getLogger("some.library").warning("slow %s", "disk")
    (line,) = read_lines(stream)
    assert (line["event"], line["level"]) == ("slow disk", "warning")


@pytest.mark.parametrize("form", ["json", "console"])
def test_lines_below_the_level_are_omitted(form: str) -> None:
    stream = io.StringIO()
    configure_logging("warning", form, stream)
    structlog.get_logger().info("chatter")
    logging.getLogger("some.library").info("chatter")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(form: str) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream)
    secret = "s3" + "cret"
    try:
        raise KeyError(len(secret))
    except KeyError:
        structlog.get_logger().exception("failed")
    assert "KeyError" in stream.getvalue()
    assert "s3cret" not in stream.getvalue()


def test_columns_have_no_colours_without_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", "console", stream)
    structlog.get_logger().info("ready", port=8443)
    assert "port=8443" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
