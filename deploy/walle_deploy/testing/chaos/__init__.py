"""Chaos of the release platform: ``kill -9`` of everything, then every device is looked at.

One *life* is a world of its own: a group on git, a signed repository with its file server, a
release store with two services, hosts with devices, and two operators who publish and release
good and bad versions at once. Processes are killed at random moments and at named crash points,
each is started anew. Then the world comes to rest and is checked: every device has exactly the
version that the policy says, whole and signed; the audit log's chain holds and tells a path of
the state machine; no event was lost. ``program`` is one process, ``world`` all of them,
``operators`` who use them, ``life`` kills and waits, ``devices`` and ``history`` check.

Run it with ``python -m walle_deploy.testing.chaos``; see docs/testing.md.
"""
