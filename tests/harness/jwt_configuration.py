"""The AuthenticationConfiguration of kube-apiserver that the documentation shows."""

import re
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).resolve().parents[2] / "docs" / "direct-tokens.md"


def read_jwt_configuration() -> Any:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (configuration,) = [each for each in map(yaml.safe_load, blocks) if each["kind"] == "AuthenticationConfiguration"]
    (issuer,) = configuration["jwt"]
    return issuer
