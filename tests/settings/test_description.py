"""settings.description: what is told about each setting, and that secrets are left out."""

from pathlib import Path

from fairlead.settings import SETTINGS, load
from fairlead.settings.description import describe_settings


def test_every_setting_is_described_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.yaml"
    file.write_text("log_level: debug\n")
    flags = {"config": str(file), "port": "8444", "data": str(tmp_path)}
    settings = load(flags, {"FAIRLEAD_LISTEN": "127.0.0.2"}, {"workers": 1})
    found = {each["name"]: each for each in describe_settings(settings)}
    assert found.keys() == SETTINGS.keys()
    sources = {name: each["source"] for name, each in found.items() if each["source"]}
    assert sources == {
        "log_level": f"{file}: log_level",
        "port": "--port",
        "data": "--data",
        "listen": "FAIRLEAD_LISTEN",
    }
    assert (found["port"]["value"], found["port"]["default"]) == (8444, "8443")
    assert found["data"]["value"] == str(tmp_path)


def test_passwords_in_urls_are_left_out() -> None:
    settings = load({"store": "postgres://ada:secret@db.example.com/fairlead?password=hidden"}, {})
    found = {each["name"]: each for each in describe_settings(settings)}
    assert found["store"]["value"] == "postgres://db.example.com/fairlead"
    assert "secret" not in str(found) and "hidden" not in str(found)
