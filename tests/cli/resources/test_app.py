"""`fairlead app create`: what an app deploys."""

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object

REPOSITORY = "https://charts.example.com"


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (("--chart", "web"), "--chart needs a repository; set --repo"),
        (("--chart", "web", "--repo", "http://charts.example.com"), "is neither an https:// nor an oci:// URL"),
        (("--chart", "./web"), "--chart ./web is a folder or a file of this machine"),
        (("--chart", "."), "run `helm package` and `helm push`"),
        (("--chart", "web-1.0.0.tgz", "--repo", REPOSITORY), "which the server cannot read"),
        (
            ("--chart", "oci://registry.example.com/charts/web"),
            "set --chart web --repo oci://registry.example.com/charts",
        ),
    ],
)
def test_a_chart_that_the_server_cannot_download_is_refused_at_once(
    user: CliFixture, flags: tuple[str, ...], advice: str
) -> None:
    result = user.run("app", "create", "web", *flags)
    assert (result.code, advice in result.err) == (2, True), result.err
    assert not user.fake.requests_to("POST", f"{M}/apps")


@pytest.mark.parametrize("repo", [REPOSITORY, "oci://registry.example.com/charts", "{{ parameters.repo }}"])
def test_a_chart_of_a_repository_is_an_app(user: CliFixture, repo: str) -> None:
    user.fake.on("POST", f"{M}/apps", (201, build_object("web", kind="App")))
    result = user.run("app", "create", "web", "--chart", "web", "--repo", repo)
    assert result.code == 0, result.err
    (created,) = user.fake.requests_to("POST", f"{M}/apps")
    assert created.body["spec"]["config"]["chart"] == {"name": "web", "repoURL": repo}
