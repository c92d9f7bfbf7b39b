"""Counts a device's runs and remembers its last page."""


def run(ctx, page):  # noqa: ANN001, ANN201 - a task's script has no types
    """Count, remember, emit."""
    runs = ctx.state.get("runs", 0) + 1
    ctx.state.put("runs", runs)
    last = ctx.state.get("last", None)
    kinds = [event.kind for event in page.events]
    times = [event.event_time_ms - page.enter_time_ms for event in page.events]
    ctx.state.put("last", {"page": page.page_id, "kinds": kinds, "times": times})
    ctx.emit({"runs": runs, "page": page.page_id, "kinds": kinds, "last": last})
