"""``python -m walle_stream``: the ``walle`` command."""

from walle_stream.cli.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
