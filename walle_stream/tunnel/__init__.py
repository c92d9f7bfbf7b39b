"""The device-cloud tunnel, as far as it knows no transport.

In come frames that commits made durable, and acknowledgements. Out go envelopes in order, and on
the other side what was not seen before. ``session`` sends and remembers what is not acknowledged,
``outbox`` bounds what waits, ``letters`` sends dead letters. ``receiver`` refuses frames of former
owners, and finds duplicates and gaps.

The room never sends what is not durable, and forgets nothing before its acknowledgement.
"""
