"""The device-cloud tunnel: outbox, session, receiver."""
