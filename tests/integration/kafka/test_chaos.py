"""Ten kills of hosts, cloud app, sender and broker, other faults among them; ``make chaos-kafka``: 300."""

import pytest

from walle_stream.testing.chaos import Campaign, ChaosPlan, PartPlan, render

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

KILLS = 10


@pytest.mark.parametrize(
    "target", ["kafka", pytest.param("kafka-machines", marks=pytest.mark.slow)]
)
def test_kills_lose_nothing_and_double_nothing(target, tmp_path):
    plan = ChaosPlan(
        pipeline="shop",
        overrides=(
            "spec.source.devices=40",
            "spec.source.payloadBytes=100",
            "spec.state.journalEvents=100",
            "spec.runtime.activeDevices=30",
        ),
        parts=(PartPlan(target, KILLS),),
        seed=5,
        mean_delay_s=0.6,
    )
    report = Campaign(plan, tmp_path / "chaos").run()
    assert report.kills == KILLS
    assert not report.mismatches, render(report)
