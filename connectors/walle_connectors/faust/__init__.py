"""Faust beside Walle's cloud side, by its public interface alone; needs the extra ``cloud``.

``records`` gives Faust's users features as typed records, for agents, tables and windows of their
own. ``baseline`` is what one would build without devices that work (``walle cloud --baseline``):
raw events to the cloud, sessionised there into the same features; ``visits`` and ``cloud_task``
are its pure parts, ``program`` makes its app.

Nothing here imports Faust before a command or a program asks for it.
"""
