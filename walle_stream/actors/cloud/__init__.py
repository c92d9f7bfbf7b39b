"""The cloud side inside a run: merges what arrives, answers what is asked.

In: frames of the tunnel. Out: rows of a feature table, with the receiver's state and the
log's position in the same write batch; replies to calls. ``remote_tunnel`` and ``holdings``
are a host's ends of it, where it is an actor in another process.

The room never merges a frame twice, and acknowledges none that is not stored.
"""
