"""Which images and files a Dockerfile uses. What is missed here would not count for the key of a build."""

import pytest

from fairlead.runner.engines.devcontainer.inside.dockerfile import read_dockerfile, split_instructions

ONE = "FROM debian\n"
FEATURES = """
ARG _DEV_CONTAINERS_BASE_IMAGE=scratch
FROM debian AS own
FROM dev_container_feature_content_temp as dev_containers_feature_content_source

ARG _DEV_CONTAINERS_BASE_IMAGE=scratch

FROM $_DEV_CONTAINERS_BASE_IMAGE AS dev_containers_feature_content_normalize
USER root
COPY --from=dev_containers_feature_content_source /tmp/build-features/x.env /tmp/build-features/
FROM $_DEV_CONTAINERS_BASE_IMAGE AS dev_containers_target_stage
COPY --from=dev_containers_feature_content_normalize /tmp/build-features/ /tmp/dev-container-features
COPY --chown=root:root --from=dev_containers_feature_content_source /tmp/a /tmp/b
RUN chmod -R 0755 /tmp/dev-container-features \\
&& ls
ARG _DEV_CONTAINERS_IMAGE_USER=root
USER $_DEV_CONTAINERS_IMAGE_USER
LABEL devcontainer.metadata="[{\\"id\\":\\"x\\"}]"
"""


def read(text: str, **arguments: str) -> tuple[list[str], list[str] | None]:
    used = read_dockerfile(text, arguments)
    assert used is not None
    return used.images, used.sources


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("FROM debian:12\nRUN apt-get update\n", ["debian:12"]),
        ("from\tdebian  as\tx\nFROM x\n", ["debian"]),
        ("FROM debian\nFROM alpine\nFROM debian\n", ["debian", "alpine"]),
        ("FROM scratch\n", []),
        ("FROM deb\\\nian\n", ["debian"]),
        ("FROM \\\n# a comment\n\n  \t# another \\\n debian\n", ["debian"]),
        ("ARG V=12\nFROM debian:${V}\n", ["debian:12"]),
        ("ARG V=12\nARG W=debian:$V\nFROM ${W}-slim\n", ["debian:12-slim"]),
        ('ARG A=3 B="12"\nARG IMAGE=\'debian\'\nFROM "${IMAGE}:$B.${A}"\n', ["debian:12.3"]),
        ("FROM alpine AS debian\nFROM debian\n", ["alpine"]),
        ("FROM debian AS Build\nFROM build\n", ["debian", "build"]),
        (f"{ONE}COPY --from=alpine /a /b\n", ["debian", "alpine"]),
        (f"{ONE}COPY --fr\\\nom=al\\\npine /a /b\n", ["debian", "alpine"]),
        (f"{ONE}COPY --chown=1 --from=alpine /a /b\n", ["debian", "alpine"]),
        ("FROM debian AS a\nFROM scratch\nCOPY --from=a /a /b\nCOPY --from=0 /a /b\n", ["debian"]),
        ("FROM debian AS alpine\nCOPY --from=alpine /a /b\n", ["debian", "alpine"]),
        ("# syntax=docker/dockerfile:1\n# FROM x\nFROM debian\r\nRUN a && \\\r\n    b\r\n", ["debian"]),
        (f"{ONE}ENV X=alpine\nARG debian=x\nHEALTHCHECK --interval=1s CMD x\nLABEL a=<b\n", ["debian"]),
    ],
)
def test_images_are_those_that_stages_begin_with_and_that_files_come_from(text: str, images: list[str]) -> None:
    assert read(text)[0] == images


def test_arguments_of_the_build_count_before_defaults() -> None:
    assert read("ARG X=debian\nFROM $X\n", X="alpine")[0] == ["alpine"]
    assert read("ARG X\nFROM $X\n", X="alpine")[0] == ["alpine"]
    assert read("FROM debian\nARG X\n", X="alpine")[0] == ["debian"]


def test_what_the_cli_writes_for_features_is_understood() -> None:
    files = "dev_container_feature_content_temp"
    assert read(FEATURES, _DEV_CONTAINERS_BASE_IMAGE="vsc-demo-1") == (["debian", files, "vsc-demo-1"], [])
    assert read(FEATURES, _DEV_CONTAINERS_BASE_IMAGE="own") == (["debian", files], [])


@pytest.mark.parametrize(
    ("line", "sources"),
    [
        ("RUN make", []),
        ("COPY a b/*.txt /x/", ["a", "b/*.txt"]),
        ("add\ta.tar.gz \t /x", ["a.tar.gz"]),
        ("COPY a\\\nb /x", ["ab"]),
        ("COPY a \\\n  # c\n\n  b /x", ["a", "b"]),
        ("COPY a\rb /x", ["a", "b"]),
        ("COPY --chown=$U:1 --chmod=755 . .", ["."]),
        ('COPY ["with space", "two  spaces", "/x/"]', ["with space", "two  spaces"]),
        ('COPY [ "a --b", "--c", "/x/" ]', ["a --b", "--c"]),
        ('ADD ["\\u0061", "/x"]', ["a"]),
        ("COPY a --b /x", ["a", "--b"]),
        ("COPY a --from=alpine /x", ["a", "--from=alpine"]),
        ("COPY --from=alpine a /x", []),
        ("COPY a /x\nCOPY --from=alpine b /x\nADD c /x", ["a", "c"]),
        ("COPY ünï /x", ["ünï"]),
    ],
)
def test_sources_are_the_files_of_the_context_that_are_copied(line: str, sources: list[str]) -> None:
    assert read(f"{ONE}{line}\n")[1] == sources


@pytest.mark.parametrize(
    "line",
    [
        *("COPY $D /x", "COPY a${D}b /x", "ENV D=a\nCOPY $D /x", 'COPY "a" /x', "COPY 'a' /x", "COPY a\\ b /x"),
        *("COPY [ab] /x", 'COPY ["a", "/x"] rest', 'COPY ["a", 1]', 'COPY ["a"', 'COPY ["$D", "/x"]', 'COPY ["", "/"]'),
        *("COPY a/**/b /x", "COPY **/b /x", "COPY {a,b} /x", "COPY a#b /x", "COPY a:b /x", "COPY [" + "[" * 50_000),
        *("RUN --mount=type=bind,target=/x true", "RUN --mount=type=cache,target=/x true\nCOPY a /x"),
        *("RUN --network=none --mount=type=bind,target=/x true", "run\t--mou\\\nnt=type=bind,target=/x true"),
    ],
    ids=lambda line: line[:60],
)
def test_where_it_is_not_known_all_files_of_the_context_count(line: str) -> None:
    assert read(f"{ONE}{line}\n") == (["debian"], None)


@pytest.mark.parametrize(
    "line",
    [
        # what servers send
        *("ADD https://example.com/x /x", "ADD a http://example.com/x /x", 'ADD ["http\\u003a//example.com/x", "/x"]'),
        *('ADD h"tt"p://example.com/x /x', "ADD $U /x", "ENV U=http://example.com/x\nADD ${U} /x", "ADD a.git /x"),
        *("ADD git@example.com:x /x", "ADD git@example.com:x.git#main /x", "ADD github.com/a/b /x", "ADD x* $U /x"),
        *(
            'ADD ["a", "$U", "/x"]',
            'ADD "a" /x',
            "AD\\\nD http://example.com/x /x",
            "ADD --checksum=x https://e.com /x",
        ),
        # images
        *("COPY --from=$X /a /b", "COPY --from=${X:-alpine} /a /b", 'COPY --from="alpine" /a /b', "COPY --from /a /b"),
        *("COPY --from= /a /b", "COPY --FROM=alpine /a /b", 'COPY --fr"om"=alpine /a /b', "COPY --fr\\om=alpine /a /b"),
        *("COPY --$X=alpine /a /b", 'COPY --chown="a b" --from=alpine /a /b', "COPY --chown='a' --from=alpine /a /b"),
        *("COPY --from=7 /a /b", "COPY --from=0 /a /b", "COPY --from=\u00b2 /a /b", "ADD --from=alpine /a /b"),
        *("COPY -- a /x", "COPY --unknown a /x", "COPY -- --from=alpine /x", "FROM 0", "FROM", "FROM debian x"),
        *("FROM debian x y", "FROM $X", "FROM ${X:-alpine}", "FROM a\\b", "FROM 'alpine", 'FROM a"l"pine', "FROM ''"),
        *("FROM --platform=linux/arm64 alpine", "FROM --platform=$BUILDPLATFORM alpine", "FROM alpine AS 1"),
        *("ARG X=alpine\nFROM $X", "FROM a AS b\nFROM c AS b\nCOPY --from=b / /x", "FROM alpine AS $X"),
        *("RUN --mount=type=bind,from=alpine,target=/x true", 'RUN --mount=type=bind,"from=alpine",target=/x true'),
        *("RUN --mount=type=bind,fr\\om=alpine,target=/x true", "RUN --mount=$M true", 'RUN --mou"nt"=type=bind true'),
        *("RUN --mount=type=bind,target=/x --mount=type=bind,from=alpine,target=/y true", "RUN -- true"),
        *("RUN --mount=type=bind,fr\\\nom=alpine,target=/x true", "RUN --unknown true"),
        # what comes later
        *("ONBUILD COPY . /x", "ONBUILD RUN make", "onbuild add https://example.com/x /x", "ONBU\\\nILD RUN make"),
        # here-documents
        *("RUN <<EOF\nFROM x AS alpine\nEOF", "COPY <<EOF /x\na\nEOF", "RUN cat 3<<-'EOF'\nUSER x\nEOF"),
        *("RUN <\\\n<EOF\nUSER x\nEOF", "RUN ${X:-<}<EOF\nUSER x\nEOF", "RUN <${X:+y}<EOF\nUSER x\nEOF"),
        # characters that are blanks to some readers
        *("COPY a\u00a0b /x", "COPY a\u2028b /x", "COPY a\x1cb /x", "COPY a\vb /x", "COPY\fa /x", "FROM\u00a0alpine"),
        *("RUN true\u2028COPY a /x", "RUN true\u0085COPY a /x", "RUN true \\\u00a0\nCOPY a /x", "\u00a0# x\nRUN a"),
        # unknown instructions
        *("INCLUDE x", "RUNX true", "\ufeffRUN true", "CO PY a /x", "RUN a \\\r\r\nb"),
    ],
)
def test_a_build_that_depends_on_something_else_is_not_shared(line: str) -> None:
    assert read_dockerfile(f"{ONE}{line}\n", {}) is None


@pytest.mark.parametrize(
    "text",
    [
        *("# escape=`\nFROM debian\n", "#ESCAPE = `\nFROM debian\n", "# syntax=x\n\t# escape\t= `\nFROM debian\n"),
        *("\ufeffFROM debian\n", "\ufeff# escape=`\nFROM debian\n"),
        "ARG X=a\\b\nFROM debian:$X\n",
        "ARG X=debian\nARG X=al\\pine\nFROM $X\n",
        "ARG X=debian\nARG X=alpine\nFROM $X\n",
        "ARG X=-slim\nARG X\nFROM debian$X\n",
        "ARG X=debian\nARG X=${Y:-alpine}\nFROM $X\n",
        "ARG X\nFROM debian$X\n",
        "ARG Y=12\nARG X='$Y'\nFROM debian:$X\n",
        'ARG X="a"b\nFROM $X\n',
        'ARG X="a b"\nFROM debian\n',
        "ARG N=X\nARG X=debian\nARG $N=alpine\nFROM $X\n",
        "ARG X=debian\nFROM \\$X\n",
        "ARG X=debian\nFROM ${X#d}\n",
        "ARG TARGETARCH=debian\nFROM $TARGETARCH\n",
        "ARG BUILDPLATFORM=debian\nFROM $BUILDPLATFORM\n",
        "ARG http_proxy=debian\nFROM $http_proxy\n",
    ],
)
def test_a_beginning_that_podman_could_read_differently_is_not_shared(text: str) -> None:
    assert read_dockerfile(text, {}) is None


def test_a_value_that_is_not_plain_is_not_shared() -> None:
    for value in ("$Y", "a\\b", '"debian"', "debian'"):
        assert read_dockerfile("ARG X=debian\nFROM $X\n", {"X": value}) is None


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("RUN a \\\n  b\n\nRUN c", ["RUN a   b", "RUN c"]),
        ("RU\\\nN a", ["RUN a"]),
        ("RUN a\\ \t\r\nb", ["RUN ab"]),
        ("RUN a \\\r\r\nUSER b", ["RUN a \\", "USER b"]),
        ("RUN a \\\n# c \\\n \t# d\n\n \n  b\nUSER x", ["RUN a   b", "USER x"]),
        ("# a \\\nRUN b", ["RUN b"]),
        ("  RUN a \\", ["RUN a"]),
        ("\\\n  RUN a", ["RUN a"]),
        ("RUN a\\\\\nb", ["RUN a\\b"]),
        ("RUN a `\nUSER b", ["RUN a `", "USER b"]),
        ("RUN a \u2028USER b", ["RUN a \u2028USER b"]),
        ("\\\n", []),
        ("", []),
    ],
)
def test_lines_are_joined_as_podman_joins_them(text: str, instructions: list[str]) -> None:
    assert list(split_instructions(text)) == instructions


@pytest.mark.parametrize(
    "text", ["\n " * 400_000, "RUN x \\\n" + "y \\\n" * 250_000 + "z\n"], ids=["empty lines", "continued lines"]
)
def test_a_large_file_is_read_in_linear_time(text: str) -> None:
    """A build would hold up others of its repository."""
    used = read_dockerfile(f"FROM a\n{text}", {})
    assert used is not None and used.images == ["a"]
