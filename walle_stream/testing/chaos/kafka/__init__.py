"""A pipeline over a real Kafka as a chaos target: hosts of a group, cloud app, sender, broker.

``target`` implements the campaign's seam, ``life`` runs one life and does the faults,
``members`` are the processes, ``place`` is the broker with a link per host, ``feed``
writes the input while everything dies, ``sender`` sends messages, ``exchange`` is the task that
takes them and asks a service, ``table`` reads what came out. See docs/testing.md.
"""

from walle_stream.testing.chaos.kafka.target import KafkaMachinesTarget, KafkaTarget

__all__ = ["KafkaMachinesTarget", "KafkaTarget"]
