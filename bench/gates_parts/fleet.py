"""Fleets under a release, counted as the product counts them: a row for each minute.

A device runs the task at random moments, 20 times an hour; a run fails with a small probability.
With a daily rhythm both follow the hour. A device is in ``new`` from when it has installed the
version, in ``control`` from its first receipt until then. The number of its failed runs so far, in
either group, decides for which levels it is at risk (``walle_deploy.model.health``).
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from walle_deploy.model.health import LEVELS
from walle_deploy.release.steps import GrayStep

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]

PERCENTS: Final = (1.0, 5.0, 20.0, 50.0, 99.0)
"""Of the devices that have the version, by step: a hold-out of 1 % is left at the end."""

CLOSED: Final = 2
"""Minutes from a window's begin until gates read it."""

RUNS: Final = 20 / 60
"""Of a device in a minute."""

EXPOSURE: Final = GrayStep(percent=1).min_exposure
"""Minutes in which a device of the version ran, on average, before a step ends."""

_HELD: Final = 60
"""Most minutes that a step is held; a longer step is never held. At night a device runs four times
in these minutes."""
_DAY: Final = 1_440
_SWING: Final = 0.8
_ASKED: Final = 10 / 60
"""Minutes within which devices ask for releases: the default of ``walle fleet``."""
_REPORTED: Final = 5 / 60
"""Minutes from a run to its report: half of the default of ``spec.reports.every``."""
_INSTALLED: Final = 0.5
"""Minutes that an installation takes, on average."""
_SLOW: Final = 60
"""The same of slow devices, and minutes from report to report."""
_SLOW_SHARE: Final = 0.1
_BROKEN_SHARE: Final = 0.005
_BUSY: Final = {"busy": (0.002, 15.5), "busy 5 %": (0.05, 3.0), "busy 10 %": (0.1, 4.0)}
"""Share of the devices that run always, and how many times as long their runs take."""
_MOST: Final = max(LEVELS) + 8
"""Failures of a device that are looked at where all its runs fail."""


class Setting(NamedTuple):
    """A fleet, and what the new version does to it."""

    devices: int
    base: float
    """Share of the runs that fail under either version."""
    minutes: int
    """Of each step; the last one is that of everybody."""
    daily: bool
    """Whether runs and failures follow the hour."""
    failing: float = 0.0
    """Share of the devices on which all runs fail under the new version."""
    kind: str = "alike"
    """Kind of the fleet. ``alike``: all devices are alike. ``spread``: numbers of runs and failures
    differ widely. ``slow``: a tenth installs and reports late, and fails more often. ``broken``:
    half a percent always fails, under any version. ``busy``: two in a thousand run all the time,
    and slowly, the others once an hour. ``busy 5 %`` and ``busy 10 %``: that share of the devices
    does, 3 and 4 times as slowly."""


class Counted(NamedTuple):
    """What was counted: a row a minute; the first four have a column a level."""

    new_at_risk: Ints
    new_reached: Ints
    control_at_risk: Ints
    control_reached: Ints
    new_devices: Ints
    """That reported runs so far."""
    new_failing: Ints
    control_devices: Ints
    control_failing: Ints
    installed: Ints
    """Devices that have the version."""


def simulate(setting: Setting, rng: np.random.Generator) -> Counted:
    """Return what is counted of one release.

    Args:
        setting: Of the fleet.
        rng: Random generator.
    """
    clock, fleet = drawn(setting, rng)
    minutes = int(fleet.begins[-1])
    device, at = _failures(setting, fleet, clock, rng)
    is_new = at >= fleet.moved[device]
    window = np.minimum(fleet.reported(device, at).astype(np.int64), minutes)
    first = np.searchsorted(device, np.arange(setting.devices))
    number = np.arange(len(device)) - first[device] + 1
    moved = np.minimum(fleet.moved, minutes).astype(np.int64)
    entered = np.minimum(fleet.entered, minutes).astype(np.int64)
    is_counted = _counted(fleet, clock, device, at, rng)
    shape = minutes, len(LEVELS)
    counts = [np.zeros(shape, np.int64) for _ in range(4)]
    for place, level in enumerate(LEVELS):
        here = number == level
        until, is_late = np.full(setting.devices, minutes), np.zeros(setting.devices, bool)
        until[device[here]], is_late[device[here]] = window[here], is_new[here]
        ends = np.where(is_late, np.maximum(until, moved), until)
        for is_new_group, begin, end in (
            (True, moved, np.maximum(ends, moved)),
            (False, entered, np.maximum(np.minimum(ends, moved), entered)),
        ):
            of = here & (is_new == is_new_group)
            reached = _tally(window[of & is_counted], minutes)
            at_risk = reached.copy()
            for pace in np.unique(fleet.pace):
                own = fleet.pace == pace
                alive = np.cumsum(_tally(begin[own], minutes) - _tally(end[own], minutes))
                at_risk += rng.binomial(np.maximum(alive, 0), clock.ran(pace))
            counts[0 if is_new_group else 2][:, place] = at_risk
            counts[1 if is_new_group else 3][:, place] = reached
    devices = np.arange(setting.devices)
    seen, before = (
        fleet.reported(slice(None), clock.next_run(begun, fleet.pace, rng))
        for begun in (fleet.moved, fleet.entered)
    )
    for first, of in ((seen, is_new), (before, ~is_new)):
        np.minimum.at(first, device[of], window[of].astype(np.float64))
    return Counted(
        *counts,
        np.cumsum(_tally(seen, minutes)),
        np.cumsum(_tally(_first(device[is_new], window[is_new], devices), minutes)),
        np.cumsum(_tally(before[before < fleet.moved], minutes)),
        np.cumsum(_tally(_first(device[~is_new], window[~is_new], devices), minutes)),
        np.cumsum(_tally(fleet.moved, minutes)),
    )


def drawn(setting: Setting, rng: np.random.Generator) -> tuple["Clock", "Fleet"]:
    """Return devices of a fleet, and their clock until the release ends."""
    clock = Clock((len(PERCENTS) + 1) * (setting.minutes + _HELD), setting.daily, rng)
    fleet = Fleet(setting, clock, rng)
    clock.cut(int(fleet.begins[-1]))
    return clock, fleet


class Clock:
    """How much runs, and how much fails, up to each minute."""

    def __init__(self, minutes: int, daily: bool, rng: np.random.Generator) -> None:
        """Begin at some hour of the day."""
        self.minutes = np.arange(minutes + 1, dtype=np.float64)
        at = 2 * math.pi * (self.minutes[:-1] + rng.uniform(0, _DAY)) / _DAY
        self.rhythm = 1 + _SWING * np.sin(at) if daily else np.ones(minutes)
        self.ran_so_far = np.concatenate(([0.0], np.cumsum(self.rhythm)))
        self.failed_so_far = np.concatenate(([0.0], np.cumsum(self.rhythm**2)))

    def cut(self, minutes: int) -> None:
        """Forget what comes after this number of minutes."""
        self.minutes, self.rhythm = self.minutes[: minutes + 1], self.rhythm[:minutes]
        self.ran_so_far = self.ran_so_far[: minutes + 1]
        self.failed_so_far = self.failed_so_far[: minutes + 1]

    def next_run(self, after: Floats, pace: Floats, rng: np.random.Generator) -> Floats:
        """Return when devices have their first run after some moment; the end for never."""
        begun = np.interp(after, self.minutes, self.ran_so_far)
        place = begun + rng.exponential(1.0, len(begun)) / (RUNS * np.abs(pace))
        return np.where(
            place < self.ran_so_far[-1],
            np.interp(place, self.ran_so_far, self.minutes),
            len(self.rhythm),
        )

    def ran(self, pace: float) -> Floats:
        """Return the share of devices that report a run in each minute; a pace < 0 is slow."""
        runs = RUNS * abs(pace) * self.rhythm
        if pace > 0:
            return -np.expm1(-runs)
        return -np.expm1(-runs * _SLOW) / _SLOW


class Fleet:
    """Devices: when they are counted, and how they run."""

    def __init__(self, setting: Setting, clock: Clock, rng: np.random.Generator) -> None:
        """Draw devices, and when steps begin."""
        count = setting.devices
        step = np.searchsorted(PERCENTS, rng.random(count) * 100, side="right")
        asked = rng.uniform(0, _ASKED, count)
        self.pace, self.frailty, self.slower = np.ones(count), np.ones(count), np.zeros(count)
        is_slow = np.zeros(count, bool)
        if setting.kind == "slow":
            is_slow = rng.random(count) < _SLOW_SHARE
            self.pace[is_slow], self.frailty[is_slow], self.slower[is_slow] = -1.0, 5.0, 0.5
        elif setting.kind == "spread":
            self.pace = rng.choice([0.25, 1.0, 4.0], count)
            self.slower = 0.5 * np.log(self.pace)
            self.frailty = np.minimum(np.exp(rng.normal(-1.125, 1.5, count)), 0.3 / setting.base)
        elif setting.kind in _BUSY:
            share, factor = _BUSY[setting.kind]
            is_busy = rng.random(count) < share
            self.pace = np.where(is_busy, 12.0, 0.05)
            self.slower = np.where(is_busy, np.log(factor), 0.0)
        """``slower``: logarithm of how many times as long a device's runs take."""
        installing = rng.exponential(np.where(is_slow, _SLOW, _INSTALLED))
        self.begins = self._begins(setting, clock, step, rng)
        """Minute in which each step begins, and after them the end."""
        begin, minutes = self.begins[step], self.begins[-1]
        self.moved = np.where(step < len(PERCENTS), begin + asked + installing, float(minutes))
        self.entered = np.where(step == 0, self.moved, asked)
        self.always = rng.random(count) < (_BROKEN_SHARE if setting.kind == "broken" else 0.0)
        self.fails = rng.random(count) < setting.failing
        self._phase = np.where(is_slow, rng.uniform(0, _SLOW, count), -1.0)

    def _begins(
        self, setting: Setting, clock: Clock, step: Ints, rng: np.random.Generator
    ) -> Floats:
        """Return when steps begin: the one before has lasted, and its devices ran often enough."""
        begins, chances = [0], {pace: clock.ran(pace) for pace in np.unique(self.pace).tolist()}
        for number in range(len(PERCENTS) + 1):
            at, paces = begins[-1], self.pace[step <= number]
            end, ran = at + setting.minutes, np.zeros(len(paces))
            while at < end + _HELD and setting.minutes < _HELD:
                if at >= end and ran.sum() >= EXPOSURE * np.count_nonzero(ran):
                    break
                chance = [chances[pace][at] for pace in chances]
                ran += (
                    rng.random(len(paces)) < np.array(chance)[np.searchsorted(list(chances), paces)]
                )
                at += 1
            begins.append(max(at, end))
        return np.array(begins, np.float64)

    def reported(self, device: Ints | slice, at: Floats) -> Floats:
        """Return when what devices did at some time is reported."""
        phase = self._phase[device]
        late = np.ceil((at - phase) / _SLOW) * _SLOW + phase
        return np.asarray(np.where(phase < 0, at + _REPORTED, late))


def _failures(
    setting: Setting, fleet: Fleet, clock: Clock, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Return failed runs: the device and the minute of each, by both."""
    end = float(len(clock.rhythm))
    some = np.where(fleet.fails, fleet.moved, np.where(fleet.always, fleet.entered, end))
    some = np.maximum(np.minimum(some, end), fleet.entered)
    bounds = [np.interp(each, clock.minutes, clock.failed_so_far) for each in (fleet.entered, some)]
    pace = RUNS * np.abs(fleet.pace)
    amount = rng.poisson(setting.base * fleet.frailty * pace * np.maximum(bounds[1] - bounds[0], 0))
    device = np.repeat(np.arange(setting.devices), amount)
    place = bounds[0][device] + rng.random(len(device)) * (bounds[1] - bounds[0])[device]
    at = np.interp(place, clock.failed_so_far, clock.minutes)
    bad = np.flatnonzero(fleet.fails | fleet.always)
    begin = np.interp(some[bad], clock.minutes, clock.ran_so_far)
    between = rng.exponential(1.0, (len(bad), _MOST)) / pace[bad, None]
    places = begin[:, None] + np.cumsum(between, axis=1)
    kept = places < clock.ran_so_far[-1]
    device = np.concatenate((device, np.repeat(bad, _MOST)[kept.ravel()]))
    at = np.concatenate((at, np.interp(places[kept], clock.ran_so_far, clock.minutes)))
    order = np.argsort(device * (end + 1) + at)  # one key is quicker than two
    return device[order], at[order]


def _counted(
    fleet: Fleet, clock: Clock, device: Ints, at: Floats, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which failed runs are in their device's first report in a window."""
    arrived = fleet.reported(device, at)
    window = arrived.astype(np.int64)
    here = device * (len(clock.rhythm) + 2) + window
    is_first = np.concatenate(([True], here[1:] != here[:-1])) if len(here) else here > 0
    paces = RUNS * fleet.pace[device] * clock.rhythm[np.minimum(window, len(clock.rhythm) - 1)]
    earlier = np.maximum(arrived - window - 2 * _REPORTED, 0.0) * np.maximum(paces, 0.0)
    # where all runs fail, one before would be a failure, too; slow devices report once
    is_bad = fleet.always[device] | (fleet.fails[device] & (at >= fleet.moved[device]))
    is_alone = is_bad | (rng.random(len(at)) < np.exp(-earlier))
    return (is_first & is_alone) | (fleet.pace[device] < 0)


def _first(device: Ints, window: Ints, devices: Ints) -> Ints:
    """Return the window of the first failure of each device that has one."""
    place = np.searchsorted(device, devices)
    has = np.searchsorted(device, devices, side="right") > place
    return window[place[has]]


def _tally(windows: NDArray[np.generic], minutes: int) -> Ints:
    """Return how many of these there are by minute."""
    return np.bincount(windows.astype(np.int64).clip(0, minutes), minlength=minutes + 1)[:minutes]
