"""Purchase intent: one feature for every item put into the cart or ordered.

Views are counted per item, for a bounded number of items. So a ranking model
learns at once how interest grew: the number of views, their age, and whether
the item was in the cart before the order.
"""


def run(ctx, page):
    """Keep a view; describe the views before a cart or an order."""
    event = page.trigger
    item_id, now_ms = event.item, event.event_time_ms
    views = ctx.state.get("views", {})  # item -> [count, first, last]
    if event.id == "view":
        seen = views.pop(item_id, [0, now_ms, now_ms])
        views[item_id] = [seen[0] + 1, seen[1], now_ms]
        while len(views) > ctx.config["history"]:
            del views[next(iter(views))]  # the item with the oldest last view
        ctx.state.put("views", views)
        return

    cart = ctx.state.get("cart", [])
    count, first_ms, last_ms = views.get(item_id, [0, None, None])
    ctx.emit(
        {
            "device_id": ctx.device_id,
            "item_id": item_id,
            "action": event.id,
            "time_ms": now_ms,
            "views_before": count,
            "first_view_ago_ms": None if first_ms is None else now_ms - first_ms,
            "last_view_ago_ms": None if last_ms is None else now_ms - last_ms,
            "items_viewed": len(views),
            "was_in_cart": item_id in cart,
            "cart_size": len(cart),
        }
    )
    if event.id == "cart":
        if item_id not in cart:
            cart.append(item_id)
    elif item_id in cart:
        cart.remove(item_id)
    ctx.state.put("cart", cart[-ctx.config["history"] :])
