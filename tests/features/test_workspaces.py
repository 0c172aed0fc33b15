"""features.workspaces: the metric of runners."""

from fairlead.features.workspaces import count_runners


def test_runners_are_counted_by_status_and_one_without_a_report_is_not_ready() -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    family = count_runners([ready, ready, not_ready, {}])
    assert (family.name, family.labels) == ("fairlead_runners", ("status",))
    assert list(family.series) == [(("Ready",), 2), (("NotReady",), 2), (("Silent",), 0)]
