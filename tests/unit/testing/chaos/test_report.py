import msgspec

from walle_stream.testing.chaos.report import (
    FaultReport,
    Mismatch,
    PartReport,
    render,
    these_versions,
    this_machine,
)


def make_report():
    part = PartReport(target="local", wanted=3, lives=1, runs=4)
    part.count("run", "at vm.before")
    part.count("run", "at vm.before")
    part.count("vm", "after vm.after")
    return FaultReport(
        pipeline="ipv",
        seed=7,
        date="2026-01-02",
        machine=this_machine(),
        versions=these_versions(),
        parts=[part, PartReport(target="isolated", wanted=2)],
    )


def test_a_report_survives_its_json():
    report = make_report()
    again = msgspec.json.decode(report.to_json(), type=FaultReport)
    assert again == report
    assert (again.format, again.kills) == (1, 3)


def test_people_see_totals_a_histogram_and_the_verdict():
    text = render(make_report())
    assert "local: 3 of 3 kills counted" in text
    assert f"  {'at vm.before':<22} {2:>4} {'#' * 40}" in text
    assert f"  {'vm':<22} {1:>4} {'#' * 20}" in text
    assert "the bytes of the unkilled run" in text
    assert "seed 7" in text
    assert "python 3." in text


def test_a_mismatch_is_the_verdict():
    report = make_report()
    report.parts[1].mismatches.append(Mismatch("life-9", "features: 1 of 2 lines missing"))
    assert "DIFFERENT: life-9: features: 1 of 2 lines missing" in render(report)
    assert "unkilled run" not in render(report)
