"""Counters, gauges and histograms in Prometheus' text format, version 0.0.4.

Names are ours, and the format allows them. Values of labels may come from outside, and are escaped.
Every answer gets new metrics, which one thread fills and renders. ``metrics_server`` serves the
text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

_NO_NUMBERS: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
"""Special numbers as Python writes them, and as the format has them."""


class Metric:
    """A counter or a gauge: a number for each set of values of its labels."""

    def __init__(self, name: str, labels: Sequence[str]) -> None:
        """Begin without numbers, but without labels with the number 0."""
        self._name = name
        self._labels = labels
        self._numbers: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def set(self, number: float, **labels: str) -> None:
        """Set the number for these values of all labels."""
        self._numbers[tuple(labels[name] for name in self._labels)] = number

    def samples(self) -> list[str]:
        """Return the lines of all numbers, by the values of the labels."""
        return [
            _sample(self._name, dict(zip(self._labels, values, strict=True)), number)
            for values, number in sorted(self._numbers.items())
        ]


class Metrics:
    """All metrics of an answer, in the order of their addition."""

    def __init__(self) -> None:
        """Start without metrics."""
        self._parts: list[tuple[str, Callable[[], Iterable[str]]]] = []

    def counter(self, name: str, help_: str, labels: Sequence[str] = ()) -> Metric:
        """Add a counter; its name has a unit and ends in ``_total``, and its help is a sentence."""
        return self._added("counter", name, help_, labels)

    def gauge(self, name: str, help_: str, labels: Sequence[str] = ()) -> Metric:
        """Add a gauge."""
        return self._added("gauge", name, help_, labels)

    def histogram(
        self, name: str, help_: str, bounds: Sequence[float], below: Sequence[int], total: float
    ) -> None:
        """Add a histogram of observations that were counted elsewhere.

        ``below`` has the number of observations ≤ each bound, ascending, and then the number of
        all observations. ``total`` is their sum.
        """
        lines = [
            _sample(f"{name}_bucket", {"le": _text_of(bound)}, count)
            for bound, count in zip((*bounds, inf), below, strict=True)
        ]
        lines += [_sample(f"{name}_sum", {}, total), _sample(f"{name}_count", {}, below[-1])]
        self._parts.append((_head("histogram", name, help_), lambda: lines))

    def render(self) -> str:
        """Return all metrics as text."""
        return "".join(f"{line}\n" for head, samples in self._parts for line in (head, *samples()))

    def _added(self, kind: str, name: str, help_: str, labels: Sequence[str]) -> Metric:
        metric = Metric(name, labels)
        self._parts.append((_head(kind, name, help_), metric.samples))
        return metric


def _head(kind: str, name: str, help_: str) -> str:
    text = help_.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}"


def _sample(name: str, labels: Mapping[str, str], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{pairs}}} {_text_of(number)}" if pairs else f"{name} {_text_of(number)}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _text_of(number: float) -> str:
    text = str(int(number)) if isinstance(number, int) else repr(float(number))
    return _NO_NUMBERS.get(text, text)
