"""A device's count, beside as much state as its first row asks for; the task of ``load.yaml``."""

from hashlib import shake_256


def run(ctx, page):  # type: ignore[no-untyped-def]
    """Count the row at hand, and send the count with the time at which the row was sent."""
    row = page.rows[0][4]
    count = ctx.state.get("count", 0) + 1
    ctx.state.put("count", count)
    if row["pad"]:
        # nothing that could be packed
        ctx.state.put("pad", shake_256(ctx.device_id.encode()).hexdigest(row["pad"] // 2))
    ctx.emit({"count": count, "sent": row["sent"]})
