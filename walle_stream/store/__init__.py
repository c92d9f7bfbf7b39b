"""What a device, or a cloud side, has on its disk: a RocksDB for each partition.

In come rows and keys of whoever owns a partition. Out goes one write batch for each commit, and
what was committed before. ``datadir`` is a data directory, ``partition`` a database with its lock,
``transaction`` one commit, ``keys`` the layout of keys, ``durability`` when a commit survives a
power cut, ``snapshots`` copies for other machines.

The room never

- writes half of a commit, or says of one that it is durable before it is;
- opens a database that another process writes, or of another layout;
- knows what a row means.
"""
