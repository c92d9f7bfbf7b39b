"""Chance of a purchase, by a model on the host from a visitor's last views of item pages."""

from math import log1p

LAST = 5


def run(ctx, page):
    """Describe one finished view, and run the model on it and the views before it."""
    if not page.is_complete:
        return
    clicks, depth = [], 0.0
    for event in page.events:
        if event.kind == "click":
            clicks.append(event["widget"])
        elif event.kind == "page_scroll":
            depth = max(depth, event["depth"])
    enter = page.events[0]
    view = [log1p(page.dwell_ms), depth, log1p(len(clicks)), float("cart" in clicks)]
    views = [*ctx.state.get("views", []), view][-LAST:]
    ctx.state.put("views", views)
    # the host fills the chances in after the run, for all views of a batch at once
    chances = ctx.run_model("intent", ctx.tensor(views, dtype="float32")).astype("float64")
    ctx.emit(
        {
            "item_id": enter["item"],
            "chance": chances.take([-1]).reshape().round(5),
            "mean_chance": chances.mean().round(5),
            "views": len(views),
        }
    )
