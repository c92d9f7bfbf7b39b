"""The part of the device-cloud tunnel that does not depend on a transport.

The input is frames that commits made durable, and acknowledgements. The output is envelopes in
order, and new records on the other side. ``session`` sends frames and tracks unacknowledged ones,
``outbox`` bounds waiting frames, and ``letters`` sends dead letters. ``receiver`` refuses frames
of former owners, and finds duplicates and gaps.

This package sends only durable frames, and keeps each one until its acknowledgement.
"""
