"""The gates of a release: whether it may go on, has to wait, or is stopped.

Each gate is a sequential test of the new version against the previous one that may be looked at
any number of times. ``errorRate`` is shared evenly by the gates that are on (Bonferroni).

- failures, crashes: a device is the unit. Null hypothesis: at most ``tolerated`` of the devices
  have one. Where the previous version has more than that itself, the new one is measured
  against it: see ``_share``.
- latency: at most ``tolerated`` times slower; output: at most so many times larger or smaller.

A version that keeps the null hypothesis is stopped with a probability of ``errorRate`` at most,
over the whole release. That is proven of failures and crashes, and measured of the others, where
it needs devices with about equally many runs. docs/deploy/releases.md has the figures.
"""

import math
from typing import Final, Literal

import msgspec

from walle_deploy.model.health import GAMMA, VersionHealth
from walle_deploy.release.drift import Values, bounded, changed, grew, matched
from walle_deploy.release.evidence import SHARES_BETS, Counts, exceeds, exceeds_other
from walle_deploy.release.limits import Gates, LatencyGate
from walle_stream.wire.reports import bucket_of

type Outcome = Literal["go", "wait", "stop"]
"""``wait`` is not enough data yet."""

# how much less evidence against the previous version's share suffices, and the least: measured
_COMPARED: Final = 40.0
_LEAST: Final = 0.2


class Verdict(msgspec.Struct, frozen=True):
    """What one gate found."""

    gate: str
    """``failures``, ``crashes``, ``latency`` or ``output``."""
    outcome: Outcome
    evidence: float
    """0 to 1 and more: at 1 the release is stopped. Logarithmic."""
    text: str
    """For people, with the figures."""


class Judgement(msgspec.Struct, frozen=True):
    """What all gates found."""

    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    devices: int
    """That reported runs of the new version."""

    @property
    def why(self) -> str:
        """The gates that decided, for the audit log."""
        if self.outcome == "stop":
            return "; ".join(each.text for each in self.verdicts if each.outcome == "stop")
        return f"{self.devices} devices, no gate stops it"


def judge(gates: Gates, new: VersionHealth, old: VersionHealth | None) -> Judgement:
    """Look at a release's health.

    Args:
        gates: Of the release.
        new: Of its version, since it was first offered.
        old: Of the previous version, since ``controller.LOOKBACK_MS`` before; None where there
            is none.
    """
    drifting = old is not None and (gates.latency.enabled, gates.output.enabled)
    count = 2 + (sum(drifting) if drifting else 0)
    limit = math.log(count / gates.error_rate)
    verdicts = [
        _share("failures", gates.failures.tolerated, new, old, limit),
        _share("crashes", gates.crashes.tolerated, new, old, limit),
    ]
    if old is not None and gates.latency.enabled:
        verdicts.append(_latency(gates.latency, new, old, limit))
    if old is not None and gates.output.enabled:
        verdicts.append(_output(gates.output.tolerated, new, old, limit))
    outcomes = {each.outcome for each in verdicts}
    outcome: Outcome = "stop" if "stop" in outcomes else "wait" if "wait" in outcomes else "go"
    return Judgement(outcome, tuple(verdicts), new.devices)


def _share(
    gate: str, tolerated: float, new: VersionHealth, old: VersionHealth | None, limit: float
) -> Verdict:
    """Test a share of devices.

    Two tests must both reject. Against "at most ``tolerated``" with the gate's whole error rate:
    this is the promise, and it holds whatever the previous version does. Against "at most the
    previous version's, which is more than ``tolerated``" with much less evidence: no data of a
    few hundred devices could decide that at the same rate (where both versions fail on 1 %, 4 of
    200 against 0 of 200 is chance in 2 of 100 releases), and that the stable version breaks the
    promise is the exception. How often that test errs is measured, not proven.
    """
    counts = Counts(_marked(gate, new), new.devices)
    found = exceeds(counts, tolerated, SHARES_BETS) / limit
    text = f"{gate}: {_devices(counts)} of {new.version}"
    if old is not None and old.devices:
        usual = Counts(_marked(gate, old), old.devices)
        text += f", {_devices(usual)} of {old.version}"
        compared = exceeds_other(counts, usual, SHARES_BETS, tolerated)
        found = min(found, compared / max(_LEAST, limit - math.log(_COMPARED)))
    text += f", tolerated {tolerated:.2%}"
    return _verdict(gate, found, text, is_known=new.devices > 0)


def _latency(gate: LatencyGate, new: VersionHealth, old: VersionHealth, limit: float) -> Verdict:
    mine, usual = Values(new.latency_us, new.devices), Values(old.latency_us, old.devices)
    if not (mine.buckets and usual.buckets):
        return _verdict("latency", 0.0, "latency: no runs to compare yet", is_known=False)
    least, tolerated = bucket_of(1_000.0 * gate.floor), gate.tolerated
    alike, usual_alike = matched(mine, usual, least)
    if not alike.buckets:
        found = grew(*bounded(mine, usual, least), tolerated) / limit
        text = (
            f"latency: no calls as large as those of {old.version}; as far as others say, "
            f"{'slower' if found >= 1 else 'not slower'} than {tolerated:g} times"
        )
        return _verdict("latency", found, text)
    mine, usual = alike, usual_alike
    found = grew(mine, usual, tolerated) / limit
    text = (
        f"latency: p50 {_ratio(mine, usual, 0.5):.2f}, p99 {_ratio(mine, usual, 0.99):.2f} times "
        f"that of {old.version}, tolerated {tolerated:g}"
    )
    return _verdict("latency", found, text)


def _output(tolerated: float, new: VersionHealth, old: VersionHealth, limit: float) -> Verdict:
    mine, usual = Values(new.output_bytes, new.devices), Values(old.output_bytes, old.devices)
    if not (mine.buckets and usual.buckets):
        return _verdict("output", 0.0, "output: no runs to compare yet", is_known=False)
    found = changed(mine, usual, tolerated) / limit
    text = (
        f"output: median {_ratio(mine, usual, 0.5):.2f} times that of {old.version}, "
        f"tolerated {tolerated:g} either way"
    )
    return _verdict("output", found, text)


def _verdict(gate: str, found: float, text: str, *, is_known: bool = True) -> Verdict:
    outcome: Outcome = "stop" if found >= 1 else "go" if is_known else "wait"
    return Verdict(gate, outcome, round(max(0.0, found), 3), text)


def _marked(gate: str, health: VersionHealth) -> int:
    return health.failing_devices if gate == "failures" else health.crashing_devices


def _devices(counts: Counts) -> str:
    return f"{counts.marked:g} of {counts.total:g} devices"


def _ratio(new: Values, old: Values, share: float) -> float:
    return float(GAMMA ** (new.quantile(share) - old.quantile(share)))
