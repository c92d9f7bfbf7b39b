"""A pipeline over a real Kafka as a chaos target: hosts of a group, workers, sender, broker.

``target`` implements ``Target``. ``life`` runs one life and injects the faults. ``members`` are the
processes. ``place`` is the broker with a link per host. ``feed`` writes the input during faults.
``sender`` sends messages. ``exchange`` is a task that takes messages and calls a service. ``table``
reads the results. See docs/testing.md.
"""

from walle_stream.testing.chaos.kafka.target import KafkaMachinesTarget, KafkaTarget

__all__ = ["KafkaMachinesTarget", "KafkaTarget"]
