"""Chaos of the release platform: ``kill -9`` of every process, then a check of every device.

One *life* is a world of its own: a group on git, a signed repository with its file server, a
release store with two services, and hosts with devices. Two operators publish and release good and
bad versions at once. Processes are killed at random moments and at named crash points, and each is
restarted. Then the world comes to rest and is checked. Every device has exactly the version that
the policy demands, whole and signed. The audit log's chain holds, and follows a path of the state
machine. No event was lost.

``program`` is one process, ``world`` all of them, ``operators`` their users. ``life`` kills and
waits; ``devices`` and ``history`` check.

Run it with ``python -m walle_deploy.testing.chaos``; see docs/testing.md.
"""
