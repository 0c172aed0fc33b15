"""A `helm` program that records how it was called, and then behaves as a test tells it."""

import json
import sys
from pathlib import Path

from fairlead.controllers.helm.chart import Chart
from tests.fake_cluster.chart_repository import Chart as PackedChart

FAKE_HELM_SCRIPT = """#!{python}
import json, os, stat, sys
from pathlib import Path
arguments = sys.argv[1:]
paths = {{flag: arguments[arguments.index(flag) + 1] for flag in ("--kubeconfig", "--values") if flag in arguments}}
call = {{"arguments": arguments, "environment": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read()}}
call["files"] = {{flag: Path(path).read_text() for flag, path in paths.items()}}
call["modes"] = {{flag: stat.S_IMODE(os.stat(path).st_mode) for flag, path in paths.items()}}
call["folder"] = stat.S_IMODE(os.stat(os.getcwd()).st_mode)
with open({log!r}, "a") as log:
    log.write(json.dumps(call) + "\\n")
{code}
"""


class FakeHelmProgram:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "helm"
        self.log = folder / "log"
        self.set_behaviour("")

    def set_behaviour(self, code: str) -> None:
        script = FAKE_HELM_SCRIPT.format(python=sys.executable, log=str(self.log), code=code)
        self.path.write_text(script)
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class LocalCharts:
    """Implements `ChartSource` without a network."""

    async def fetch(self, chart: Chart, folder: Path) -> Path:
        path = folder / "chart.tgz"
        path.write_bytes(PackedChart(chart.name, {}).pack())
        return path
