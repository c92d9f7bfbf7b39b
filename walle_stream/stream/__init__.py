"""The pure core: event in, commands out. No I/O, no clock, no thread."""
