"""The way up while its broker dies, hangs or forgets the topic: no record missing, none overtaken."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from test_tunnel_faults import frame
from topics_of_tests import fresh_model, until

from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.topics import create_topics
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

FRAMES = 200
SENT_BEFORE = 60
PARTITIONS = 3


def send(tunnel, numbers):
    for number in numbers:
        for partition in range(PARTITIONS):
            tunnel.send([(partition, number, frame(2 * number - 1, [200, 200], partition))])


def wait_for_acks(tunnel, found, last):
    """Acknowledgements are contiguous, each comes once, whatever happens."""

    def are_there():
        for partition, numbers in found.items():
            numbers.extend(tunnel.acks(partition))
            assert numbers == list(range(1, len(numbers) + 1))
        return all(len(numbers) >= last for numbers in found.values())

    until(are_there)


def records(model, last):
    """Numbers of the topic's records by partition, as they lie there, up to the last one."""
    found, position = {partition: [] for partition in range(PARTITIONS)}, 0

    def are_there():
        nonlocal position
        for _, data in cloud.receiver.receive(position, 1 << 20):
            position += 1
            sent = decode_uplink(data)
            found[sent.partition] += [each.sequence_number for each in decode_body(sent.body)]
        return all(numbers and numbers[-1] == last for numbers in found.values())

    with closing(CloudEnd(model)) as cloud:
        until(are_there)
    return found


def first_arrivals(numbers):
    seen = set()
    return [number for number in numbers if not (number in seen or seen.add(number))]


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_broker_that_goes_in_the_middle_and_returns(broker, driver, fault):
    acknowledged = {partition: [] for partition in range(PARTITIONS)}
    with (
        fresh_model(broker.address(), driver=driver) as model,
        closing(CONNECTOR.open_device(model, 8 << 20)) as tunnel,
    ):
        send(tunnel, range(1, SENT_BEFORE + 1))
        wait_for_acks(tunnel, acknowledged, SENT_BEFORE)
        send(tunnel, range(SENT_BEFORE + 1, FRAMES // 2))  # some of them are on the way
        broker.kill() if fault == "kill" else broker.pause()
        send(tunnel, range(FRAMES // 2, FRAMES + 1))
        broker.heal()
        wait_for_acks(tunnel, acknowledged, FRAMES)
        for numbers in records(model, 2 * FRAMES).values():
            assert first_arrivals(numbers) == list(range(1, 2 * FRAMES + 1))


def has_logs(admin, name):
    folders = [folder for broker in admin.describe_log_dirs() for folder in broker["log_dirs"]]
    # a busy broker may answer with none
    return not folders or any(
        topic["name"] == name for folder in folders for topic in folder["topics"]
    )


def test_a_topic_that_is_made_anew_in_the_middle_gets_what_was_not_acknowledged(broker, driver):
    acknowledged = {partition: [] for partition in range(PARTITIONS)}
    with (
        fresh_model(broker.address(), PARTITIONS, driver=driver) as model,
        closing(CONNECTOR.open_device(model, 8 << 20)) as tunnel,
    ):
        send(tunnel, range(1, SENT_BEFORE + 1))
        wait_for_acks(tunnel, acknowledged, SENT_BEFORE)
        with admin_client(model) as admin:
            admin.delete_topics([model.topic])
            # the broker forgets its name first, and takes records for a moment more
            until(lambda: not has_logs(admin, model.topic))
        send(tunnel, range(SENT_BEFORE + 1, FRAMES + 1))
        create_topics(model, [NeededTopic(model.topic, "test", PARTITIONS, model.max_bytes)])
        wait_for_acks(tunnel, acknowledged, FRAMES)
        for numbers in records(model, 2 * FRAMES).values():
            assert first_arrivals(numbers) == list(range(2 * SENT_BEFORE + 1, 2 * FRAMES + 1))
