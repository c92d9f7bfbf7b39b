"""Sizes for people."""


def size_text(size_bytes: float) -> str:
    """Return a number of bytes with its unit: ``320 B``, ``35.0 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004 - the unit's step
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
