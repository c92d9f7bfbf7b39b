"""What the closed-world test asks of a VM."""


def make_run():
    from walle_guest.message import Message
    from walle_guest.page import Page
    from walle_guest.reply import Reply
    from walle_guest.state import State

    row = ("click", "click", 1, 1, {"a": {"b": [1]}})
    page = Page(("p", "i", "none", None, row, [row]))
    context = _session._program.context("d", 1, 0, State({"k": b"[1]"}))
    told = {"reply": Reply(["c", "s", "", b"{}"]), "message": Message(["s", 1, b"{}"])}
    return {"ctx": context, "page": page, **told}


def look():
    world = World(_session, make_run)
    nodes = world.reached()
    lasting = world.lasting(nodes)
    found = [(kind_name(n.value), n.expression) for n in lasting if not is_fixed(n.value)]
    places = hidden([(n.expression, n.value) for n in lasting])
    reached = {id(n.value) for n in lasting}
    return {
        "counts": [len(nodes), len(lasting), len(places)],
        "lasting": sorted(found),
        "makers": code_makers(places),
        "writers": writers(nodes),
        "ours": makers_of_ours(nodes),
        "hidden": sorted(
            {
                (kind_name(value), place)
                for place, value in places
                if not is_fixed(value) and id(value) not in reached
            }
        ),
    }


def kind_name(value):
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
