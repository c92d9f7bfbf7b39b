"""Reads a source to its end, as tests of both formats do."""


def read(source, offsets=None, limit=None, partitions=1, batch_events=100, keeps_raw=False):
    reader = source.open(offsets or {}, partitions, batch_events, limit)
    reader.keeps_raw = keeps_raw
    batches = []
    try:
        while not reader.is_done:
            batches += reader.read()
        assert reader.progress == 1.0 or limit is not None
    finally:
        reader.close()
        reader.close()
    return batches
