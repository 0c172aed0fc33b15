"""Dockerfiles that ask for more than a build may have."""

import pytest

from fairlead.runner.engines.devcontainer.dockerfile import check_deferred, check_dockerfile, split_instructions
from tests.runner.harness.grants import UID

FEATURES = "FROM dev_container_feature_content_temp as source\nFROM debian\nCOPY --from=source /x /x\n"


def refusals(text: str, *permissions: str, **arguments: str) -> list[str]:
    return check_dockerfile(text, arguments, UID, permissions).refused


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian:12\nRUN apt-get update\n",
        "FROM debian AS build\nRUN make\nFROM scratch\nCOPY --from=build /out /out\nCOPY --from=0 /a /b\n",
        "ARG VARIANT=12\nFROM debian:${VARIANT}\n",
        "ARG VARIANT\nFROM debian:${VARIANT:-12}\n",
        'FROM debian\nADD a.tar.gz /x\nADD ["with space", "b/*.txt", "/y/"]\nCOPY --chown=dev . .\n',
        "# FROM be\nFROM debian\n# RUN --mount=type=secret x\nRUN echo --mount\n",
        "# syntax=docker/dockerfile:1\n\nFROM debian\r\nRUN a && \\\r\n    # why\r\n\r\n    b\r\n",
        "FROM --platform=$BUILDPLATFORM debian AS Build_1\nFROM Build_1\nCOPY --from=Build_1 --chown=$U:1 /a /b\n",
        'ARG A=3 B="12"\nARG B\nARG IMAGE=\'debian\'\nFROM "${IMAGE}:$B.${A}"\n',
        'FROM debian\nRUN ["a", "b"]\nrun cat <<< "ü" | tee "$X" < y\nENV A="b \\\n c" D=e\nONBUILD RUN make\n',
        'FROM debian\nHEALTHCHECK --interval=1s CMD x\nSHELL ["sh"]\nLABEL a=<<b\nCOPY --chmod=755 --link ünï /x\n',
        FEATURES,
    ],
)
def test_ordinary_dockerfiles_pass(text: str) -> None:
    assert refusals(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian\nRUN --mount=type=bind,source=/,target=/host cat /host/etc/shadow\n",
        "FROM debian\nADD http://169.254.169.254/latest /x\n",
        'FROM debian\nADD --chown=1 h"tt"p:"/"/127.0.0.1/x /x\n',
        'FROM debian\nADD ["http\\u003a//127.0.0.1/x", "/x"]\n',
        "ARG U=http://127.0.0.1\nFROM debian\nARG U\nADD $U /x\n",
        "FROM debian\nADD git@example.com:x.git /x\n",
        "FROM debian\nONBUILD ADD https://127.0.0.1/x /x\n",
        "FROM debian\nRUN --mount=type=cache,id=../../../etc,target=/x true\n",
        "FROM debian\nRUN --mount=type=secret,id=key cat /run/secrets/key\n",
        "FROM debian\nRUN --mount=type=ssh ssh-add -l\n",
        "FROM debian\nRUN --network=host curl localhost\n",
        "FROM debian\nRUN --security=insecure mount\n",
        "FROM debian\nrun\t--mount=type=bind,target=/x true\n",
        "FROM debian\nRUN \\\n  --mount=type=bind,target=/x true\n",
        "FROM debian\nRUN \\\n\n# comment\n  --mount=type=bind,target=/x true\n",
        "# escape=`\nFROM debian\nRUN `\n --mount=type=bind,target=/x true\n",
        "FROM debian\nONBUILD RUN --mount=type=bind,target=/x true\n",
        "FROM debian\r\nRUN --mount=type=bind,target=/x true\r\n",
    ],
)
def test_mounts_networks_and_privileges_of_single_instructions_are_refused(text: str) -> None:
    assert len(refusals(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "FROM be\n",
        "FROM 39c377c59689\n",
        "FROM 1\n",
        "FROM localhost/fairlead-22222222/vsc-x\n",
        "FROM\tbe AS x\n",
        "FROM --platform=linux/amd64 be\n",
        "ARG X=be\nFROM $X\n",
        "ARG X\nFROM ${X:-be}\n",
        "ARG Y=b\nARG X=${Y}e\nFROM $X\n",
        "ARG X=x\nFROM ${X:+be}\n",
        "FROM ${X#y}be\n",
        "FROM $UNKNOWN\n",
        'FROM "be"\n',
        "FROM debian\nCOPY --from=be / /stolen\n",
        "FROM debian\nCOPY --from=7 / /stolen\n",
        "FROM debian\nARG X=be\nCOPY --from=$X / /stolen\n",
        "FROM debian\nADD --from=be / /stolen\n",
        "FROM debian\nONBUILD COPY --from=be / /stolen\n",
    ],
)
def test_images_of_other_workspaces_are_refused(text: str) -> None:
    assert len(refusals(text)) == 1


def test_arguments_of_the_build_count_before_defaults() -> None:
    assert refusals("ARG X=debian\nFROM $X\n", X="be")
    assert not refusals("ARG X=be\nFROM $X\n", X="debian")


def test_a_template_can_allow_mounts_of_builds() -> None:
    assert not refusals("FROM debian\nRUN --mount=type=cache,target=/x true\n", "buildMounts")


def test_the_files_of_features_come_from_an_image_of_the_workspace() -> None:
    text = check_dockerfile(FEATURES, {}, UID, ()).text
    assert text.startswith(f"FROM localhost/fairlead-{UID}/dev_container_feature_content_temp as source\n")


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
        ("RUN a `\nUSER b", ["RUN a `", "USER b"]),
        ("RUN a \u2028USER b", ["RUN a \u2028USER b"]),
    ],
)
def test_lines_are_joined_as_podman_joins_them(text: str, instructions: list[str]) -> None:
    assert list(split_instructions(text)) == instructions


@pytest.mark.parametrize(
    "text",
    [
        # lines that podman joins
        "AD\\\nD http://169.254.169.254/x /x",
        "RUN -\\\n-network=host cmd",
        "RUN --\\\n\n  \n# comment\nmount=type=bind,target=/x true",
        "COPY --from=b\\\ne / /stolen",
        "COPY --fr\\ \t\nom=be / /stolen",
        "ONBU\\\nILD ADD http://127.0.0.1/x /x",
        "ONBUILD AD\\\nD http://127.0.0.1/x /x",
        # lines that podman does not join
        "RUN true \\\f\nADD http://127.0.0.1/x /x",
        "RUN true \\\v\nADD http://127.0.0.1/x /x",
        "RUN true \\\u00a0\nADD http://127.0.0.1/x /x",
        "RUN true \\\r\r\nADD http://127.0.0.1/x /x",
        # characters that are blanks, or ends of lines, to some readers
        "RUN true\u2028ADD http://127.0.0.1/x /x",
        "RUN true\u0085ADD http://127.0.0.1/x /x",
        "RUN true\x1eADD http://127.0.0.1/x /x",
        "RUN \udca0--network=host true",
        "RUN\f--network=host true",
        "COPY --chown=\u0105--from=be / /stolen",
        "RUN true\0",
        # unknown instructions
        "INCLUDE x",
        "RUNX true",
        "FROM\u00a0be",
        "\ufeffRUN true",
        "<<RUN true",
        "ONBUILD",
        "ONBUILD --x RUN true",
        "ONBUILD ONBUILD RUN true",
        "ONBUILD FROM debian",
        "onbuild\tadd http://127.0.0.1/x /x",
        # here-documents
        "RUN <<EOF\nUSER x\nEOF",
        "RUN <<END\nRUN --mount=type=bind,target=/x true\nEND",
        "RUN cat 3<<-'EOF'\nUSER x\nEOF",
        'RUN <<"E\\"\nRUN a \\\nE\\\nUSER x',
        "RUN ${X:-<}<EOF\nUSER x",
        "RUN <${X:+y}<EOF\nUSER x",
        "COPY <<EOF /x\nUSER x\nEOF",
        "ADD <<EOF /x",
        "ONBUILD RUN <<EOF",
        # flags
        "run\t--network=host true",
        "RUN \t --security=insecure true",
        'RUN --mou"nt"=type=bind,target=/x true',
        "RUN -- true",
        'COPY --from="be" / /stolen',
        "COPY --from=b\\e / /stolen",
        'COPY --chown="a b" --from=debian / /stolen',
        "COPY --$X=be / /stolen",
        "COPY --from=${X:-be} / /stolen",
        "COPY --from / /stolen",
        "COPY --from= / /stolen",
        "COPY --FROM=debian / /stolen",
        "COPY --unknown / /stolen",
        "COPY -- / /stolen",
        "COPY --from=\u00b2 / /stolen",
        "COPY --from=oci-archive:/x / /stolen",
        "FROM --after=x debian",
        # what podman fetches itself
        'ADD ["http://127.0.0.1/x", "/x"] rest',
        'ADD \\\n["http://127.0.0.1/x", "/x"]',
        "ADD github.com/a/b /x",
        "ADD a.git /x",
        'ADD "a" /x',
        "ADD ${X} /x",
    ],
)
def test_what_podman_could_read_differently_is_refused(text: str) -> None:
    assert len(refusals(f"FROM debian\n{text}\n")) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "# escape=`\nFROM debian\n",
        "# escape=\\\nFROM debian\n",
        "#ESCAPE = `\nFROM debian\n",
        "# syntax=x\n# escape=`\nFROM debian\nRUN true `\nADD http://127.0.0.1/x /x\n",
        "\n \t# comment\n\t# escape\t= `\nFROM debian\n",
        "\ufeffFROM debian\n",
        "\ufeff# escape=`\nFROM debian\n",
        "RUN true\nFROM debian\n",
        "ONBUILD RUN true\nFROM debian\n",
        "\\\n",
    ],
)
def test_beginnings_that_change_how_podman_reads_are_refused(text: str) -> None:
    assert refusals(text)


@pytest.mark.parametrize(
    "text",
    [
        "ARG X=a\\b\nFROM ${X:-debian}\n",
        "ARG X=b\\e\nFROM $X\n",
        "ARG X='$Y'\nFROM ${X:-debian}\n",
        'ARG X="a"b\nFROM ${X:-debian}\n',
        'ARG X="a b"\nFROM debian\n',
        "ARG N=X\nARG $N=be\nFROM ${X:-debian}\n",
        "ARG X=$UNKNOWN\nFROM ${X:-debian}\n",
        "ARG X=be\nARG X\nFROM ${X:-debian}\n",
        "ARG X=debian\nARG X=be\nFROM $X\n",
        "FROM ${SET:-debian}\n",
        "FROM debian\nARG SET\nFROM ${SET:-debian}\n",
        "ARG TARGETARCH\nFROM ${TARGETARCH:-debian}\n",
        "ARG http_proxy\nFROM ${http_proxy:-debian}\n",
        "ARG X\nFROM ${X-be}\n",
        "ARG X=debian\nFROM $X\\\n/be:$Y\n",
        "FROM 'debian\n",
        "FROM\n",
        "FROM debian be\n",
        "FROM debian x be\nFROM be\n",
        "FROM debian AS $X\n",
        "FROM debian AS 7\n",
        "FROM debian AS BE\nFROM be\n",
        "FROM debian AS BE\nFROM debian\nCOPY --from=be / /stolen\n",
        "FROM debian AS be\nCOPY --from=be / /stolen\n",
        "FROM debian\nCOPY --from=0 / /stolen\n",
        "FROM debian AS be\nFROM debian\nONBUILD COPY --from=be / /stolen\n",
        "FROM debian\nFROM 0\n",
        "FROM vsc-other-1234\n",
        "FROM localhost/vsc-other-1234\n",
        "from dev_container_feature_content_temp\n",
        "ARG _DEV_CONTAINERS_BASE_IMAGE=vsc-other\nFROM $_DEV_CONTAINERS_BASE_IMAGE\n",
        "FROM debian\nCOPY --from=vsc-other-1234 / /stolen\n",
    ],
)
def test_images_that_podman_could_find_elsewhere_are_refused(text: str) -> None:
    assert refusals(text, SET="be")


def test_paths_that_are_nested_too_deeply_are_refused() -> None:
    assert refusals("FROM debian\nADD " + "[" * 50_000)


def test_the_cli_may_name_an_image_of_the_workspace_in_its_own_arguments() -> None:
    text = "ARG _DEV_CONTAINERS_BASE_IMAGE=placeholder\nFROM $_DEV_CONTAINERS_BASE_IMAGE AS target\n"
    checked = check_dockerfile(text, {"_DEV_CONTAINERS_BASE_IMAGE": "vsc-demo-1"}, UID, ())
    assert (checked.refused, checked.images) == ([], [f"localhost/fairlead-{UID}/vsc-demo-1"])


@pytest.mark.parametrize(
    "flag",
    [
        "--network=host",
        "--security=insecure",
        "--mount=type=bind,from=be,target=/x",
        "--mount=type=bind,from=$X,target=/x",
        '--mount=type=bind,"from=be",target=/x',
        "--mount=type=bind,fr\\om=be,target=/x",
    ],
)
def test_a_permission_for_mounts_is_not_one_for_networks_privileges_and_foreign_images(flag: str) -> None:
    assert refusals(f"FROM debian\nRUN {flag} true\n", "buildMounts")


def test_what_an_image_defers_to_builds_upon_it_is_checked_as_well() -> None:
    assert check_deferred(["RUN make", "COPY . /app"], UID, ()) == []
    assert check_deferred(["ADD http://127.0.0.1/x /x"], UID, ())
    assert check_deferred(["RUN --mount=type=bind,source=/,target=/h true"], UID, ())
    assert check_deferred(["RUN a \\", "ADD http://127.0.0.1/x /x"], UID, ())
    assert check_deferred(["RUN a\nAD\\\nD http://127.0.0.1/x /x"], UID, ())
    assert check_deferred(["ONBUILD RUN a"], UID, ()) and check_deferred(["FROM be"], UID, ())
    assert check_deferred(["# escape=`\nRUN a"], UID, ())
    assert check_deferred(["COPY --from=containers-storage:x / /"], UID, ())
