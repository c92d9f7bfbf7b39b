import json

import pytest

from walle_stream.errors import SpecFileError
from walle_stream.stream import trigger
from walle_stream.stream.trigger import EMPTY_CURSOR, TriggerTrie


def trie_of(**conditions):
    trie = TriggerTrie()
    for task, condition in conditions.items():
        trie.insert(task, condition.split())
    return trie


def fired(trie, stream, cursor=EMPTY_CURSOR):
    """What each event of the stream wakes; ``id@page`` or ``id`` on page ``p``."""
    found = []
    for word in stream.split():
        event_id, _, page_id = word.partition("@")
        cursor, tasks = trie.advance(cursor, event_id, page_id or "p")
        found.append(" ".join(tasks))
    return found


def cursor_after(trie, stream):
    cursor = EMPTY_CURSOR
    for event_id in stream.split():
        cursor, _ = trie.advance(cursor, event_id, "p")
    return cursor


# Strict contiguity


def test_a_then_b_fires_once_when_they_are_neighbours():
    assert fired(trie_of(t="a b"), "a b") == ["", "t"]


def test_a_then_b_does_not_fire_with_something_between():
    assert fired(trie_of(t="a b"), "a c b") == ["", "", ""]


def test_a_match_restarts_inside_itself():
    assert fired(trie_of(t="a a b"), "a a a b") == ["", "", "", "t"]


def test_overlapping_matches_all_fire():
    assert fired(trie_of(t="a a a"), "a a a a a a") == ["", "", "t", "t", "t", "t"]


def test_the_event_after_a_full_match_starts_anew():
    assert fired(trie_of(t="a b"), "a b b a b") == ["", "t", "", "", "t"]


def test_an_id_that_no_condition_names_ends_ongoing_matches():
    trie = trie_of(t="a b c")
    assert fired(trie, "a b z c") == ["", "", "", ""]
    assert cursor_after(trie, "a b z") == EMPTY_CURSOR


# Lists


def test_one_event_cannot_serve_two_consecutive_nodes():
    assert fired(trie_of(t="a a"), "a b a a") == ["", "", "", "t"]


def test_one_event_cannot_serve_as_event_and_as_page_in_a_row():
    assert fired(trie_of(t="a p"), "a@p") == [""]
    assert fired(trie_of(t="a p"), "a@p z@p") == ["", "t"]


def test_an_event_matches_by_its_id_or_by_its_page():
    assert fired(trie_of(e="click", p="video"), "click@feed view@video view@feed") == ["e", "p", ""]


def test_event_id_and_page_id_give_the_union():
    assert fired(trie_of(e="click", p="video"), "click@video") == ["e p"]


def test_a_task_reached_twice_by_one_event_fires_once():
    assert fired(trie_of(t="a"), "a@a") == ["t"]
    trie = trie_of(t="click")
    trie.insert("t", ["video"])
    assert fired(trie, "click@video") == ["t"]


def test_a_node_reached_twice_is_kept_once():
    trie = trie_of(t="a b")
    cursor, _ = trie.advance(EMPTY_CURSOR, "a", "a")
    assert cursor == (("a",),)


def test_one_event_fires_every_task_that_ends_there():
    trie = trie_of(c="a b", a="b", b="x a b", d="a b c")
    assert fired(trie, "x a b") == ["", "", "a b c"]


def test_two_conditions_that_end_together_fire_their_task_once():
    trie = trie_of(t="a b")
    trie.insert("t", ["b"])
    assert fired(trie, "a b") == ["", "t"]


def test_a_condition_that_goes_on_behind_another_one_fires_too():
    assert fired(trie_of(short="a", long="a b"), "a b") == ["short", "long"]


def test_the_cursor_is_sorted_and_without_leaves():
    trie = trie_of(one="b x", two="a b y", three="b")
    assert cursor_after(trie, "a b") == (("a", "b"), ("b",))
    assert cursor_after(trie, "b") == (("b",),)
    assert cursor_after(trie_of(t="b"), "b") == EMPTY_CURSOR


# Live matches in a trie of other tasks


def test_an_ongoing_match_survives_the_insertion_of_another_task():
    trie = trie_of(t="a b c")
    cursor = cursor_after(trie, "a b")
    trie.insert("other", ["a", "z"])
    assert fired(trie, "c", cursor) == ["t"]


def test_an_ongoing_match_goes_on_without_another_task():
    cursor = cursor_after(trie_of(t="a b c", other="a b d"), "a b")
    trie = trie_of(t="a b c")
    assert fired(trie, "d", cursor) == [""]
    assert fired(trie, "c", cursor) == ["t"]


def test_the_match_of_a_task_that_is_gone_ends():
    cursor = cursor_after(trie_of(t="a b"), "a")
    assert TriggerTrie().advance(cursor, "b", "p") == (EMPTY_CURSOR, ())


def test_a_task_joins_an_ongoing_match_of_its_path():
    trie = trie_of(t="a b")
    cursor = cursor_after(trie, "a")
    trie.insert("later", ["a", "c"])
    assert fired(trie, "c", cursor) == ["later"]


# Storing


def test_a_cursor_survives_storing_and_another_trie():
    trie = trie_of(t="a b c", u="b d")
    stored = json.loads(json.dumps(trie.export_cursor(cursor_after(trie, "a b"))))
    assert stored == [["a", "b"], ["b"]]
    again = trie_of(u="b d", t="a b c")
    assert fired(again, "c", again.import_cursor(stored)) == ["t"]
    assert fired(again, "d", again.import_cursor(stored)) == ["u"]


def test_a_match_whose_path_is_gone_ends_at_the_next_event():
    cursor = cursor_after(trie_of(t="a b", u="a c d"), "a c")
    trie = trie_of(t="a b")
    stored = trie.export_cursor(cursor)
    assert trie.import_cursor(stored) == cursor  # what is at rest is what is in memory
    assert trie.advance(cursor, "d", "p") == ((), ())
    trie.insert("u", ["a", "c", "d"])  # back before the next event: as if it had stayed
    assert trie.advance(trie.import_cursor(stored), "d", "p")[1] == ("u",)


def test_an_imported_cursor_has_no_empty_paths():
    trie = trie_of(t="a b c")
    assert trie.import_cursor([["z"], ["a", "b"], [], ["a", "b"]]) == (("a", "b"), ("z",))


def test_an_imported_cursor_is_the_live_one():
    trie = trie_of(t="a b c", u="b d", v="a b d")
    cursor = cursor_after(trie, "a b")
    assert trie.import_cursor(reversed(trie.export_cursor(cursor))) == cursor


# Bad conditions and bounds


@pytest.mark.parametrize("condition", [[], (), "", "page_exit"])
def test_a_condition_without_a_list_of_ids_is_refused(condition):
    trie = TriggerTrie()
    with pytest.raises(SpecFileError, match=r"task 'ipv'.*name at least one"):
        trie.insert("ipv", condition)


def test_a_very_long_condition_is_inserted_and_matched():
    condition = [str(number) for number in range(1_500)]  # deeper than Python recurses
    trie = TriggerTrie()
    trie.insert("t", condition)
    assert fired(trie, " ".join(condition))[-2:] == ["", "t"]


def test_ids_that_no_condition_names_do_not_fill_the_cache():
    trie = trie_of(t="a b")
    for number in range(1_000):
        trie.advance(EMPTY_CURSOR, f"event{number}", f"page{number}")
        trie.advance(EMPTY_CURSOR, "a", f"page{number}")
        trie.advance(EMPTY_CURSOR, f"event{number}", "b")
    assert trie._cached_count == 2


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(trigger, "_CACHE_MAX", 4)
    trie = trie_of(t="a b c d e f")
    for _ in range(3):
        assert fired(trie, "a b c d e f")[-1] == "t"
        assert trie._cached_count <= 4
