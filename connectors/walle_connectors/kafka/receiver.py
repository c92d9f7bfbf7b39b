"""The cloud side of the way up: a lane per partition of the topic."""

from collections.abc import Mapping, Sequence

from walle_connectors.kafka.topic_reader import TopicReader, within
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.tunnel_records import records_to_frames


class KafkaReceiver:
    """Implements ``UplinkReceiver``: positions are offsets, the next one that is wanted."""

    def __init__(self, model: KafkaTunnelModel) -> None:
        """Read every partition of the topic; a broker that is down is waited for."""
        self._reader = TopicReader(model, model.topic, has_all=True)
        self._turn = 0

    def receive(
        self, positions: Mapping[int, int], max_bytes: int
    ) -> Sequence[tuple[int, int, bytes]]:
        """Return frames behind the positions; see ``UplinkReceiver.receive``.

        Raises:
            TopicError: The topic was made anew.
        """
        frames: list[tuple[int, int, bytes]] = []
        found = self._reader.take(positions)
        lanes = sorted(found)
        self._turn += 1
        for place in range(len(lanes)):
            # another one is first each time: a bound of bytes must starve none
            lane = lanes[(place + self._turn) % len(lanes)]
            if max_bytes <= 0:
                break
            records = within(found[lane], max_bytes)
            max_bytes -= sum(len(record.value or b"") for record in records)
            frames += [(lane, *frame) for frame in records_to_frames(records)]
        return frames

    def release(self, lane: int, position: int) -> None:
        """Do nothing: the topic's retention decides; see ``UplinkReceiver.release``."""

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
