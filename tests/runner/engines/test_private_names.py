"""Which images the credentials of a project are for."""

import pytest

from fairlead.runner.engines.contract import RegistryCredentials
from fairlead.runner.engines.devcontainer.private_images import full_name, select_private


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("debian", "docker.io/library/debian"),
        ("debian:12", "docker.io/library/debian"),
        ("team/tools", "docker.io/team/tools"),
        ("index.docker.io/team/tools:1", "docker.io/team/tools"),
        ("registry.example.com:5000/tools", "registry.example.com:5000/tools"),
        ("Registry.Example.com/a/b:1@sha256:" + "0" * 64, "registry.example.com/a/b"),
    ],
)
def test_the_name_of_an_image_has_its_registry(reference: str, name: str) -> None:
    assert full_name(reference) == name


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        ("registry.example.com/team/tools:1", "registry.example.com/team"),
        ("registry.example.com/team", "registry.example.com/team"),
        ("registry.example.com/team-evil/tools", "registry.example.com"),
        ("registry.example.com/other", "registry.example.com"),
        ("registry.example.com.evil.example/team/tools", ""),
        ("registry.example.com:5000/team/tools", ""),
        ("evil/registry.example.com/team", ""),
        ("docker-archive:registry.example.com/team/x", ""),
        ("--authfile=/registry.example.com/team", ""),
        ("ada/tools", "docker.io/ada"),
    ],
)
def test_credentials_are_for_images_of_their_registry_alone(reference: str, place: str) -> None:
    places = ("registry.example.com", "registry.example.com/team", "docker.io/ada")
    found = select_private([reference], [RegistryCredentials(each, "u", "p") for each in places])
    assert [each.place for each in found.values()] == ([place] if place else [])
