"""Dead letters over Kafka: a topic that stores them, and the return of their records.

``sink`` sends letters. ``archive`` reads the topic again and marks replayed letters. ``returning``
writes records to the source's topic. All modules but ``model`` need kafka-python, an extra.
"""
