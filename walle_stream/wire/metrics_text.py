"""A registry of counters, gauges and histograms in Prometheus' text format.

Invariants: names and labels that break the format's rules, version 0.0.4, are a ``ValueError``;
a metric without labels is shown from the start; no figure here reaches a feature or a state row.
Who is asked makes a registry of its own for every answer; one thread fills and renders it.
``metrics_server`` shows the text.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, override

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

_NO_NUMBERS: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
"""What Python writes of them, and the format."""

type _Labels = tuple[str, ...]


class _Metric:
    kind = "untyped"
    suffixes: tuple[str, ...] = ("",)

    def __init__(self, name: str, help_: str, labels: Sequence[str], first: Any = 0) -> None:
        self.name = name
        self._help = help_
        self._label_names = tuple(labels)
        # without labels there is one series, and it is there from the start
        self._series: dict[_Labels, Any] = {} if labels else {(): first}

    def head(self) -> list[str]:
        text = self._help.replace("\\", r"\\").replace("\n", r"\n")
        return [f"# HELP {self.name} {text}", f"# TYPE {self.name} {self.kind}"]

    def samples(self) -> list[str]:
        """Return the lines of all series."""
        return [self._sample("", *figure) for figure in sorted(self._series.items())]

    def _values(self, labels: dict[str, str]) -> _Labels:
        if labels.keys() != set(self._label_names):
            raise ValueError(
                f"metric {self.name} has the labels {self._label_names}, not {tuple(labels)}"
            )
        return tuple(str(labels[name]) for name in self._label_names)

    def _sample(self, suffix: str, values: _Labels, figure: float, extra: str = "") -> str:
        pairs = [
            f'{name}="{_escape(value)}"'
            for name, value in zip(self._label_names, values, strict=True)
        ]
        if extra:
            pairs.append(extra)
        labels = "{" + ",".join(pairs) + "}" if pairs else ""
        return f"{self.name}{suffix}{labels} {_number(figure)}"


class Counter(_Metric):
    """A figure that only grows; its name ends in ``_total``."""

    kind = "counter"

    def raise_to(self, total: float, **labels: str) -> None:
        """Take over a total that is counted elsewhere; a lower one is ignored."""
        values = self._values(labels)
        self._series[values] = max(self._series.get(values, 0), total)


class Gauge(_Metric):
    """A figure that goes up and down."""

    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        """Replace the value."""
        self._series[self._values(labels)] = value


class Histogram(_Metric):
    """Counts of observations in fixed buckets."""

    kind = "histogram"
    suffixes = ("", "_bucket", "_sum", "_count")

    def __init__(
        self, name: str, help_: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        """Start empty; :meth:`Metrics.histogram` makes them.

        Bounds are inclusive, and rise; +Inf is added. Labels come without ``le``.

        Raises:
            ValueError: There are no bounds, or they do not rise.
        """
        super().__init__(name, help_, labels, ([0] * (len(bounds) + 1), 0.0))
        if not bounds or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError(f"histogram {name}: bounds {tuple(bounds)} do not rise")
        self._bounds = tuple(bounds)

    def replace(self, below: Sequence[int], total: float, **labels: str) -> None:
        """Take over what is counted elsewhere.

        ``below`` has the observations ≤ each bound, rising, and as the last number all of them.

        Raises:
            ValueError: Another number of buckets, or the labels are others.
        """
        if len(below) != len(self._bounds) + 1:
            raise ValueError(f"histogram {self.name} has {len(self._bounds)} bounds and +Inf")
        self._series[self._values(labels)] = (list(below), total)

    @override
    def samples(self) -> list[str]:
        lines = []
        for values, (below, total) in sorted(self._series.items()):
            for bound, count in zip((*self._bounds, float("inf")), below, strict=True):
                lines.append(self._sample("_bucket", values, count, f'le="{_number(bound)}"'))
            lines.append(self._sample("_sum", values, total))
            lines.append(self._sample("_count", values, below[-1]))
        return lines


class Metrics:
    """All metrics of a process, by name."""

    def __init__(self) -> None:
        """Start without any."""
        self._metrics: list[_Metric] = []
        self._names: set[str] = set()

    def counter(self, name: str, help_: str, labels: Sequence[str] = ()) -> Counter:
        """Add a counter; its name has the unit and ends in ``_total``, its help is one sentence.

        Raises:
            ValueError: A name is not allowed or taken.
        """
        if not name.endswith("_total"):
            raise ValueError(f"the name of counter {name} does not end in _total")
        return self._add(Counter(name, help_, labels), labels)

    def gauge(self, name: str, help_: str, labels: Sequence[str] = ()) -> Gauge:
        """Add a gauge."""
        return self._add(Gauge(name, help_, labels), labels)

    def histogram(
        self, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        """Add a histogram; its bounds are inclusive and rise, +Inf is added."""
        return self._add(Histogram(name, help_, labels, bounds), labels)

    def render(self) -> str:
        """Return all of them in Prometheus' text format, in the order added."""
        return "".join(
            f"{line}\n" for metric in self._metrics for line in (*metric.head(), *metric.samples())
        )

    def _add[M: _Metric](self, metric: M, labels: Sequence[str]) -> M:
        bad = [name for name in labels if not _LABEL_NAME.fullmatch(name) or name == "le"]
        if bad or not _METRIC_NAME.fullmatch(metric.name):
            raise ValueError(f"metric {metric.name!r} {tuple(labels)}: a name is not allowed")
        names = {metric.name + suffix for suffix in metric.suffixes}
        if not self._names.isdisjoint(names):
            raise ValueError(f"metric {metric.name} is there already")
        self._names |= names
        self._metrics.append(metric)
        return metric


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(figure: float) -> str:
    text = str(int(figure)) if isinstance(figure, int) else repr(float(figure))
    return _NO_NUMBERS.get(text, text)
