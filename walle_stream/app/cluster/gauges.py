"""Figures of a run as Ray metrics, for Ray's dashboard and Prometheus."""

from collections.abc import Callable
from typing import Final

from walle_stream.app.figures.status import RunStatus
from walle_stream.clock import monotonic_ms

_EVERY_MS: Final = 2_000.0
_OF_HOSTS: Final = {
    "walle_partitions": "Partitions that a host owns.",
    "walle_events": "Events of a host's partitions, cumulative for their state.",
    "walle_features": "Features of a host's partitions, cumulative for their state.",
    "walle_unread_rows": "Records of the source that a host has yet to read; -1: unknown.",
    "walle_unread_ms": "Milliseconds from the event read last to the newest; -1: unknown.",
    "walle_host_restarts": "Number of restarts of a host in this run.",
}


class RayGauges:
    """Reporter of a run's figures to Ray at intervals; one thread."""

    def __init__(self) -> None:
        """Make the metrics, in a process of Ray."""
        from ray.util.metrics import Gauge  # noqa: PLC0415 - only where Ray runs

        self._gauges = {
            name: Gauge(name, text, ("pipeline", "host")) for name, text in _OF_HOSTS.items()
        }
        self._told_ms = 0.0

    def tell(self, ask: Callable[[], RunStatus]) -> None:
        """Set the gauges if an interval has passed."""
        if monotonic_ms() - self._told_ms < _EVERY_MS:
            return
        self._told_ms = monotonic_ms()
        status = ask()
        for host in status.hosts:
            own = [each for each in status.partitions if each.host == host.index]
            values = (
                len(own),
                sum(each.events for each in own),
                sum(each.features for each in own),
                host.unread_rows,
                host.unread_ms,
                host.restarts,
            )
            tags = {"pipeline": status.pipeline, "host": str(host.index)}
            for gauge, value in zip(self._gauges.values(), values, strict=True):
                gauge.set(value, tags)
