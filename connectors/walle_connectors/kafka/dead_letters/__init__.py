"""Dead letters over Kafka: a topic that takes them, and the way of their records back.

``sink`` sends letters, ``records`` says what a letter is in a topic, ``archive`` reads the topic
again and marks what was replayed, ``returning`` writes records to the source's topic. All but
``model`` need kafka-python, an extra.
"""
