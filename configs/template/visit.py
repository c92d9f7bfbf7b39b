"""One feature per finished visit of a page."""


def run(ctx, page):
    """Count the clicks of the visit and number the visits of this device."""
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    view = {"item": page.events[0].item, "left_ms": page.exit_time_ms, "dwell_ms": page.dwell_ms}
    ctx.emit({**view, "clicks": len(page.filter(kind="click")), "visit": visits})
