"""One RocksDB per partition: keys, transactions, buffering tables."""
