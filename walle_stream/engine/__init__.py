"""The tensor engine; numpy only, also imports on Python 3.12."""
