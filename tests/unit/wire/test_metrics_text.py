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
    counter.set(3)
    assert metrics.render().endswith("\nwalle_runs_total 3\n")


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


def test_a_histogram_shows_counts_of_another_place(metrics):
    metrics.histogram("walle_commit_ms", "Commits.", [1], [3, 4], 12.0)
    assert metrics.render() == (
        "# HELP walle_commit_ms Commits.\n"
        "# TYPE walle_commit_ms histogram\n"
        'walle_commit_ms_bucket{le="1"} 3\n'
        'walle_commit_ms_bucket{le="+Inf"} 4\n'
        "walle_commit_ms_sum 12.0\n"
        "walle_commit_ms_count 4\n"
    )
