import hashlib
from threading import Event
from types import SimpleNamespace

import pytest

from walle_deploy.assembly import simulating
from walle_deploy.assembly.simulating import PackageSimulator
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.steps import SimulationStep
from walle_deploy.simulation.report import KindReport, SimulationReport
from walle_stream.errors import IntegrityError, RefNotFoundError


def version(data):
    digest = hashlib.sha256(data).hexdigest()
    return VersionFiles((PushedFile("shop/ipv/v/p.walle", f"targets/{digest}", digest, len(data)),))


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    (tmp_path / "targets").mkdir()
    for data in (b"old", b"new"):
        (tmp_path / version(data).shared[0].url).write_bytes(data)
    monkeypatch.setattr(simulating, "load_single", lambda path, _: SimpleNamespace(spec=path))
    monkeypatch.setattr(simulating, "read_events", lambda path: path)

    def simulate(statuses, new=b"new", old=None):
        def run(package, kinds, events, previous, *, stop):
            assert not stop.is_set()
            assert (package, kinds, events, previous) == (new, tmp_path / "k", tmp_path / "e", old)
            return SimulationReport(
                task="ipv",
                version="v",
                kinds=tuple(
                    KindReport(kind=f"kind-{n}", status=status, reasons=("why",) * (n == 1))
                    for n, status in enumerate(statuses)
                ),
            )

        monkeypatch.setattr(simulating, "simulate", run)
        before = version(old) if old else None
        step = SimulationStep(kinds=tmp_path / "k", events=tmp_path / "e")
        return PackageSimulator(tmp_path).simulate(version(new), before, step, Event())

    return simulate


def test_a_version_passes_where_it_does_on_all_kinds(simulated):
    result = simulated(["passed", "passed"], old=b"old")
    assert (result.passed, result.why) == (True, "ipv@v passed on 2 kinds of devices")


@pytest.mark.parametrize("status", ["failed", "not_simulated"])
def test_a_kind_that_failed_or_was_not_simulated_stops_it(simulated, status):
    result = simulated(["passed", status])
    assert not result.passed
    verb = "failed" if status == "failed" else "was not simulated"
    assert result.why == f"ipv@v {verb} on 1 of 2 kinds of devices: kind-1: why"


def test_a_package_that_is_not_there_or_altered_is_not_run(simulated, tmp_path):
    with pytest.raises(RefNotFoundError, match="its package is not in"):
        simulated([], new=b"gone")
    (tmp_path / version(b"new").shared[0].url).write_bytes(b"other")
    with pytest.raises(IntegrityError, match="was altered: publish it again"):
        simulated([])
