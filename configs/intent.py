"""How likely a visitor buys: his last views of item pages, given to a model of the host."""

from math import log1p

LAST = 5


def run(ctx, page):
    """Describe one finished view, and let the model look at it and those before."""
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
    # one crossing: the model, whatever number of rows it gets, and the mean of what it gives
    chances = ctx.run_model("intent", ctx.tensor(views, dtype="float32"))
    mean = chances.mean()
    ctx.evaluate(chances, mean)
    ctx.emit(
        {
            "item_id": enter["item"],
            "chance": round(chances.tolist()[-1][0], 5),
            "mean_chance": round(mean.item(), 5),
            "views": len(views),
        }
    )
