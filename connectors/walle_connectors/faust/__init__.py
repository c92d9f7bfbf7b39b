"""The cloud side as Faust apps over Apache Kafka; needs the extra ``cloud``.

``walle cloud FILE`` (``command``) runs the app of ``features``: it merges what devices
send into a table on RocksDB and answers look-ups. ``baseline`` is what one would build
without devices: raw events to the cloud, sessionised there into the same features.
``device_row`` and ``visits`` are the pure parts; ``settings`` reads the pipeline's YAML,
``preflight`` looks at the broker, ``apps`` makes an app, ``worker`` runs it, ``watchdog``
ends one that stalls.

Nothing here imports Faust before a command or a benchmark asks for an app.
"""
