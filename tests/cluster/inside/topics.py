"""Make topics, when the broker is ready: PARTITIONS TOPIC..."""

import sys

from broker import CLIENT, COPIES

from walle_stream.testing.broker import make_topic
from walle_stream.testing.broker.ready import round_trip

# rows have times of years ago
_SETTINGS = {"retention.ms": "-1"}


def main() -> None:
    """Make them; the times of the last two are the broker's, so that silences can be told."""
    partitions, events, *others = sys.argv[1:]
    round_trip(CLIENT, copies=COPIES)
    make_topic(CLIENT, events, partitions=int(partitions), copies=COPIES, settings=_SETTINGS)
    for topic in others:
        settings = {**_SETTINGS, "message.timestamp.type": "LogAppendTime"}
        make_topic(CLIENT, topic, partitions=int(partitions), copies=COPIES, settings=settings)


if __name__ == "__main__":
    main()
