"""A Faust program of one's own over the features' topic: trending items, counted in a table."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_worker import DEADLINE_S, Cluster, envelope, send

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("faust") is None, reason="the extra `cloud` is not installed"),
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

PROGRAM = """
import faust, os, sys
from walle_connectors.faust.records import features, features_topic

name, broker, topic, folder, expected = sys.argv[1:]
app = faust.App(
    name, broker=f"kafka://{broker}", datadir=folder, topic_partitions=4, web_enabled=False,
    consumer_auto_offset_reset="earliest", autodiscover=False, topic_disable_leader=True,
)
views = app.Table("views", default=int, partitions=4)
seen = set()

@app.agent(features_topic(app, topic))
async def count(stream):
    async for made in features(stream):
        if made.key not in seen:
            seen.add(made.key)
            views[made.feature["item"]] += 1
        if len(seen) == int(expected):
            print(sorted(views.items()), flush=True)
            os._exit(0)

faust.Worker(app, loglevel="WARN", quiet=True, redirect_stdouts=False).execute_from_commandline()
"""


def test_a_program_counts_the_items_of_features(address, tmp_path):
    cluster = Cluster(address)
    topic = cluster.topic("features")
    for number in range(1, 41):
        made = envelope(f"d{number % 8}", number // 8 + 1, number % 4)
        send(cluster, topic, made, b'{"item": "i%d"}' % (number % 3))
    cluster.producer.send(topic, key=b"d", value=b"nothing of ours", partition=0)
    cluster.flush()
    # its changelog topic has the run's name in it, and goes with it
    arguments = [f"trends-{cluster.run_id}", address, topic, str(tmp_path), "40"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    cluster.close()
    assert done.stdout.strip().endswith("[('i0', 13), ('i1', 14), ('i2', 13)]"), done.stderr
