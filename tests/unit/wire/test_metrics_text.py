import math

import pytest

from walle_stream.wire.metrics_text import Metrics


@pytest.fixture
def metrics():
    return Metrics()


def test_a_counter_without_labels_is_shown_from_the_start(metrics):
    counter = metrics.counter("walle_runs_total", "Runs.")
    assert metrics.render() == (
        "# HELP walle_runs_total Runs.\n# TYPE walle_runs_total counter\nwalle_runs_total 0\n"
    )
    counter.raise_to(3)
    assert metrics.render().endswith("\nwalle_runs_total 3\n")


def test_a_counter_never_goes_back(metrics):
    counter = metrics.counter("walle_runs_total", "Runs.")
    counter.raise_to(7)
    counter.raise_to(5)
    assert metrics.render().endswith("\nwalle_runs_total 7\n")


def test_series_are_ordered_by_their_labels(metrics):
    gauge = metrics.gauge("walle_outbox_bytes", "Bytes.", ["partition"])
    gauge.set(5, partition="1")
    gauge.set(2.5, partition="0")
    assert metrics.render().splitlines()[2:] == [
        'walle_outbox_bytes{partition="0"} 2.5',
        'walle_outbox_bytes{partition="1"} 5',
    ]


def test_help_and_label_values_are_escaped(metrics):
    gauge = metrics.gauge("walle_lag", 'Two\nlines, a \\ and a "quote".', ["topic"])
    gauge.set(1, topic='a\\b\n"c"')
    assert metrics.render() == (
        '# HELP walle_lag Two\\nlines, a \\\\ and a "quote".\n'
        "# TYPE walle_lag gauge\n"
        'walle_lag{topic="a\\\\b\\n\\"c\\""} 1\n'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (0.1, "0.1"),
        (10**20, "1" + "0" * 20),
    ],
)
def test_numbers_are_written_as_the_format_wants(metrics, value, shown):
    metrics.gauge("walle_figure", "A figure.").set(value)
    assert metrics.render().endswith(f"\nwalle_figure {shown}\n")


def test_a_histogram_takes_over_counts_of_another_place(metrics):
    histogram = metrics.histogram("walle_commit_ms", "Commits.", [1], ["partition"])
    histogram.replace([3, 4], 12.0, partition="0")
    assert metrics.render().splitlines()[2:] == [
        'walle_commit_ms_bucket{partition="0",le="1"} 3',
        'walle_commit_ms_bucket{partition="0",le="+Inf"} 4',
        'walle_commit_ms_sum{partition="0"} 12.0',
        'walle_commit_ms_count{partition="0"} 4',
    ]
    with pytest.raises(ValueError, match="1 bounds"):
        histogram.replace([3], 12.0, partition="0")


@pytest.mark.parametrize("name", ["", "1st", "with space", "naïve", "dash-ed", "new\nline"])
def test_names_outside_the_format_are_refused(metrics, name):
    with pytest.raises(ValueError, match="not allowed"):
        metrics.gauge(name, "A figure.")


@pytest.mark.parametrize("label", ["", "le", "__name__", "a:b", "1"])
def test_label_names_outside_the_format_are_refused(metrics, label):
    with pytest.raises(ValueError, match="not allowed"):
        metrics.gauge("walle_figure", "A figure.", [label])


def test_a_name_is_taken_once_with_all_its_series(metrics):
    metrics.histogram("walle_commit_ms", "Commits.", [1])
    for name in ("walle_commit_ms", "walle_commit_ms_count", "walle_commit_ms_bucket"):
        with pytest.raises(ValueError, match="there already"):
            metrics.gauge(name, "A figure.")


def test_a_counter_is_named_total(metrics):
    with pytest.raises(ValueError, match="_total"):
        metrics.counter("walle_runs", "Runs.")


@pytest.mark.parametrize("bounds", [[], [1, 1], [2, 1]])
def test_bounds_that_do_not_rise_are_refused(metrics, bounds):
    with pytest.raises(ValueError, match="do not rise"):
        metrics.histogram("walle_commit_ms", "Commits.", bounds)


def test_other_labels_than_declared_are_refused(metrics):
    counter = metrics.counter("walle_runs_total", "Runs.", ["task"])
    for labels in ({}, {"device": "d"}, {"task": "t", "device": "d"}):
        with pytest.raises(ValueError, match="has the labels"):
            counter.raise_to(1, **labels)
