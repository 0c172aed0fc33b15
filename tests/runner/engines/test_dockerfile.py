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
        "FROM debian\nRUN <<END\nRUN --mount=type=bind,target=/x true\nEND\n",
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
        "ARG X=b\\e\nFROM $X\n",
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


def test_instructions_are_joined_over_lines() -> None:
    assert list(split_instructions("RUN a \\\n  b\n\nRUN c")) == ["RUN a  b", "RUN c"]


def test_what_an_image_defers_to_builds_upon_it_is_checked_as_well() -> None:
    assert check_deferred(["RUN make", "COPY . /app"], UID, ()) == []
    assert check_deferred(["ADD http://127.0.0.1/x /x"], UID, ())
    assert check_deferred(["RUN --mount=type=bind,source=/,target=/h true"], UID, ())
    assert check_deferred(["COPY --from=containers-storage:x / /"], UID, ())
