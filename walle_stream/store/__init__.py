"""Storage of a device or a cloud side on disk: a RocksDB database for each partition.

Input: rows and keys of a partition's owner. Output: one write batch for each commit, and committed
rows. ``datadir`` is a data directory, ``partition`` a database with its lock, ``transaction`` one
commit. ``keys`` has the layout of keys. ``durability`` tracks the commits that survive a power cut.
``snapshots`` makes copies for other machines.

The package never

- writes half of a commit, or reports it as durable before it is;
- opens a database that another process writes, or one with another layout;
- knows the meaning of a row.
"""
