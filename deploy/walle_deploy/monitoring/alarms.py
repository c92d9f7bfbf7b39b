"""The alarm board: derives alarm messages from health. Pure.

An alarm belongs to one rule and one version of one task. One message tells its beginning and one
its end, however often the board looks.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.counts import percentile
from walle_deploy.monitoring.definition import AlarmRule

ALARM_VERSION: Final = 1

type _Key = tuple[str, str, str]

_US: Final = 1_000.0


class AlarmMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the webhook's receiver."""

    id: str
    """Id of this message. ``firing`` and ``resolved`` of one alarm have different ids."""
    alarm: str
    """Id of the alarm, the same from its beginning to its end."""
    state: Literal["firing", "resolved"]
    rule: str
    task: str
    version: str
    measure: str = ""
    """Empty if the rule no longer exists."""
    value: float | None = None
    """None if there is nothing left to measure."""
    above: float = 0.0
    since_ms: int
    at_ms: int
    runs: int = 0
    """Runs in the window."""
    devices: int = 0
    text: str = ""
    format: int = ALARM_VERSION


class AlarmBoard:
    """The alarms that fire now. One thread."""

    def __init__(self, rules: Iterable[AlarmRule]) -> None:
        """Start without alarms."""
        self._rules = tuple(rules)
        self.firing: dict[_Key, int] = {}
        """Start of each alarm in epoch ms, by rule, task and version."""

    def look(
        self,
        seen_ms: Mapping[tuple[str, str], int],
        health: Callable[[str, str], VersionHealth],
        now_ms: int,
        is_active: Callable[[str, str], bool] = lambda _task, _version: True,
    ) -> list[AlarmMessage]:
        """Return new messages. If a callable raises, the board stays as it was.

        ``seen_ms`` has the time of the last report by task and version. ``health`` covers the
        window.
        """
        firing = dict(self.firing)
        messages = [_gone(firing, key, now_ms) for key in self.firing if not self._has_rule(*key)]
        for (task, version), last_ms in seen_ms.items():
            recent: VersionHealth | None = None
            for rule in self._rules:
                if not fnmatchcase(task, rule.tasks):
                    continue
                recent = recent or health(task, version)
                value: float | None
                if rule.measure == "silence":
                    value = now_ms - last_ms if is_active(task, version) else None
                else:
                    value = _measured(rule, recent)
                message = _judge(firing, rule, recent, value, now_ms)
                if message is not None:
                    messages.append(message)
        self.firing = firing
        return messages

    def _has_rule(self, name: str, task: str, _version: str) -> bool:
        return any(rule.name == name and fnmatchcase(task, rule.tasks) for rule in self._rules)


def _judge(
    firing: dict[_Key, int],
    rule: AlarmRule,
    health: VersionHealth,
    value: float | None,
    now_ms: int,
) -> AlarmMessage | None:
    key = rule.name, health.task, health.version
    is_firing = value is not None and value > rule.above
    if is_firing == (key in firing):
        return None
    if is_firing:
        since_ms = firing[key] = now_ms
    else:
        since_ms = firing.pop(key)
    state: Literal["firing", "resolved"] = "firing" if is_firing else "resolved"
    alarm = _alarm_id(key, since_ms)
    return AlarmMessage(
        id=f"{alarm}-{state}",
        alarm=alarm,
        state=state,
        rule=rule.name,
        task=health.task,
        version=health.version,
        measure=rule.measure,
        value=value,
        above=rule.above,
        since_ms=since_ms,
        at_ms=now_ms,
        runs=health.runs,
        devices=health.devices,
        text=_text(rule, health, value, state),
    )


def _gone(firing: dict[_Key, int], key: _Key, now_ms: int) -> AlarmMessage:
    """End the alarm of a rule that no longer exists; its receiver would wait forever."""
    (rule, task, version), since_ms = key, firing.pop(key)
    alarm = _alarm_id(key, since_ms)
    return AlarmMessage(
        id=f"{alarm}-resolved",
        alarm=alarm,
        state="resolved",
        rule=rule,
        task=task,
        version=version,
        since_ms=since_ms,
        at_ms=now_ms,
        text=f"{task}@{version}: {rule} resolved: no rule of this name applies any more",
    )


def _alarm_id(key: _Key, since_ms: int) -> str:
    return blake2b(repr((*key, since_ms)).encode(), digest_size=8).hexdigest()


def _measured(rule: AlarmRule, health: VersionHealth) -> float | None:
    runs, devices = health.runs, health.devices
    if not runs or not devices or runs < rule.min_runs or devices < rule.min_devices:
        return None
    match rule.measure:
        case "failureRate":
            return health.failures / runs
        case "failingDevices":
            return health.failing_devices / devices
        case "crashingDevices":
            return health.crashing_devices / devices
        case _:
            p99_us = percentile(health.latency_us, 0.99)
            return None if p99_us is None else p99_us / _US


def _text(rule: AlarmRule, health: VersionHealth, value: float | None, state: str) -> str:
    name = f"{health.task}@{health.version}"
    if value is None:
        return f"{name}: {rule.name} {state}: there is nothing left to measure"
    unit = " ms" if rule.measure in {"latencyP99", "silence"} else ""
    counted = f"{health.runs} runs on {health.devices} devices"
    return (
        f"{name}: {rule.name} {state}: {rule.measure} {value:.4g}{unit}, limit {rule.above:g}"
        f"{unit}, {counted}"
    )
