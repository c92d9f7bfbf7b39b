"""The cloud side over Kafka: ``walle cloud``.

``reader`` is a member of the consumer group of a pipeline's workers. It reads the tunnel's topic
with the clients of the source and hands records to ``walle_stream.cloud``. ``records`` decodes
records; ``letters`` sends invalid records to the topic of dead letters. ``worker`` assembles the
process that ``command`` runs. kafka-python is an extra, so only ``command`` is imported before the
command runs.
"""
