"""The cloud side over Kafka: ``walle cloud``.

``reader`` is a member of the consumer group of a pipeline's workers: it reads the tunnel's topic
as the source reads one, by the same clients, and hands records to ``walle_stream.cloud``.
``records`` says what records are, ``letters`` sends on those that are none. ``worker`` puts a
process together, ``command`` is its command. kafka-python is an extra: nothing here is imported
before the command runs, but for ``command``.
"""
