"""Runs the test suites of Python clients against a server.

The tests come from a clone that the developer has, the client from the package index, into a virtual environment that
is thrown away. Nothing of either is part of this project. Tests that need what Fairlead does not have are left out, for
the reasons in `not_applicable.json`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.client_suites.servers import ApiServer

HERE = Path(__file__).parent
TEST_SECONDS = 60
PYTEST_RAN = (0, 1)
"""The exit codes of pytest after it has run tests."""
PASSED, SKIPPED, NOT_APPLICABLE = "passed", "skipped", "not applicable"


@dataclass(frozen=True, slots=True)
class Suite:
    """A client: what to install, and which files of its repository are tests.

    `files` are folders and files of the clone with their places next to the installed packages; `tests` are those to
    run.
    """

    name: str
    packages: tuple[str, ...]
    files: Mapping[str, str]
    tests: tuple[str, ...]
    configuration: str = ""
    """The content of its pytest.ini, below the first line."""


SUITES = (
    Suite(
        "kubernetes",
        ("kubernetes",),
        {
            "kubernetes/e2e_test": "kubernetes/e2e_test",
            "kubernetes/base/dynamic/test_client.py": "kubernetes/dynamic/test_client.py",
            "kubernetes/base/dynamic/test_discovery.py": "kubernetes/dynamic/test_discovery.py",
        },
        ("kubernetes/e2e_test", "kubernetes/dynamic"),
    ),
    Suite("lightkube", ("lightkube",), {"e2e-tests": "e2e-tests"}, ("e2e-tests",)),
    Suite(
        "kr8s",
        ("kr8s", "trio"),
        {"conftest.py": "conftest.py", "kr8s/conftest.py": "kr8s/conftest.py", "kr8s/tests": "kr8s/tests"},
        ("kr8s/tests",),
        "asyncio_mode = auto\n",
    ),
)
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pyyaml")


@dataclass(frozen=True, slots=True)
class Result:
    outcome: str
    message: str

    @property
    def is_failure(self) -> bool:
        return self.outcome not in (PASSED, SKIPPED, NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class InstalledSuite:
    """A suite in its virtual environment."""

    suite: Suite
    folder: Path

    @staticmethod
    def install(suite: Suite, clone: Path, folder: Path) -> "InstalledSuite":
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        installed = InstalledSuite(suite, folder)
        pip = (installed._python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, *suite.packages, *TOOLS], check=True)
        for source, target in suite.files.items():
            _copy(clone / source, installed.packages / target)
        shutil.copy(HERE / "suite_plugin.py", installed.packages / "suite_plugin.py")
        stand_in = installed.packages / "pytest_kind"
        stand_in.mkdir(exist_ok=True)
        shutil.copy(HERE / "kind_cluster.py", stand_in / "cluster.py")
        (installed.packages / "pytest.ini").write_text(f"[pytest]\n{suite.configuration}")
        return installed

    @property
    def _python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        return next((self.folder / "lib").glob("python*")) / "site-packages"

    def run(self, server: ApiServer, kubectl: Path) -> dict[str, Result]:
        """Runs the applicable tests. The results by test id."""
        work = self.folder / server.name
        work.mkdir()
        results, kubeconfig, left_out = work / "results.json", work / "kubeconfig", work / "not_applicable.json"
        kubeconfig.write_text(server.kubeconfig())
        left_out.write_text(json.dumps(list(not_applicable(self.suite.name))))
        options = ("-q", "-p", "suite_plugin", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}")
        with (work / "pytest.log").open("w") as log:
            done = subprocess.run(
                [self._python, "-m", "pytest", *options, *self.suite.tests],
                cwd=self.packages,
                env=_environment(work, kubectl, SUITE_RESULTS=results, SUITE_NOT_APPLICABLE=left_out)
                | {"KUBECONFIG": str(kubeconfig), "SUITE_KUBECONFIG": str(kubeconfig)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode not in PYTEST_RAN:
            raise RuntimeError(f"the suite {self.suite.name} did not run: {(work / 'pytest.log').read_text()[-2000:]}")
        return {test: Result(**each) for test, each in json.loads(results.read_text()).items()}


def _environment(home: Path, kubectl: Path, **files: Path) -> dict[str, str]:
    path = f"{kubectl.parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(home), **{name: str(file) for name, file in files.items()}}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def not_applicable(suite: str) -> Mapping[str, str]:
    """The patterns of test ids that are left out, with their reasons."""
    reasons = json.loads((HERE / "not_applicable.json").read_text(encoding="utf-8"))[suite]
    return {pattern: reason for reason, patterns in reasons.items() for pattern in patterns}


def find_differences(expected: Mapping[str, Result], got: Mapping[str, Result]) -> Iterable[tuple[str, Result]]:
    """The tests that fail on Fairlead and not on the reference, which has no results if there is none."""
    for test, result in got.items():
        if result.is_failure and not (test in expected and expected[test].is_failure):
            yield test, result
