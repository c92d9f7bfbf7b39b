"""The paper's cloud-only way, for comparison: features are made in the cloud, from raw events.

This is the usual design if devices only send events, built with Faust (extra ``cloud``). Raw events
(``spec.source.connector: kafka``, keyed by device) form sessions in a Faust table. The exit of a
page makes the feature at once, with the script of the pipeline's task. The feature goes to the
tunnel's topic, in the same format, and ``walle cloud`` merges it like features of devices.
Both topics need the same number of partitions. ``ipv_parts.visits`` says what it does not do.
"""

import argparse
import logging
import sys
from pathlib import Path

from walle_connectors.kafka.pipeline import load_kafka
from walle_stream.cloud.place import own_data_dir
from walle_stream.errors import WalleError


def main() -> int:
    """Run until SIGTERM or SIGINT, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="pipeline YAML over Kafka")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--data-dir", type=Path, required=True, help="tables of this worker")
    parser.add_argument("--web-host", default="127.0.0.1", metavar="HOST")
    parser.add_argument("--web-port", type=int, default=6066, metavar="N")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr)
    try:
        from ipv_parts.program import run_baseline  # noqa: PLC0415 - an extra

        loaded = load_kafka(options.file, options.set)
        with own_data_dir(options.data_dir) as data_dir:
            return run_baseline(loaded, data_dir, options, sys.stdout)
    except WalleError as error:
        print(f"baseline: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
