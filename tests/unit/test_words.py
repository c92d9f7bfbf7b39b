"""Pages are in short sentences, and pages and code have no turns that make readers stumble."""

from pathlib import Path

import pytest

from tests.words import code_sentences, sentences, turns

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]


def test_sentences_are_short():
    lengths = sorted(each.words for page in PAGES for each in sentences(page))
    assert len(lengths) > 2_000
    assert sum(lengths) / len(lengths) <= 18
    assert lengths[int(len(lengths) * 0.95)] <= 32


def test_turns_that_make_readers_stumble_are_not_there():
    found = [(each, turns(each)) for page in PAGES for each in sentences(page)]
    assert [f"{each.file}:{each.line}: {each.text}" for each, said in found if said] == []


@pytest.mark.parametrize("folder", ["walle_stream", "connectors", "deploy"])
def test_turns_are_not_in_docstrings_comments_and_messages(folder):
    files = [path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts]
    found = [(each, turns(each)) for path in files for each in code_sentences(path)]
    assert [f"{each.file}:{each.line}: {each.text}" for each, said in found if said] == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Who asks again is refused.", ["clause as subject"]),
        ("What was made since then is made once more.", ["clause as subject"]),
        ("Who has seen it?", []),
        ("The run of before is kept.", ["of before"]),
        ("An error is said in one line.", ["is said"]),
        ("There are so many pages.", ["so many"]),
        ("There are so many that it waits.", []),
    ],
)
def test_turns_are_found(tmp_path, text, named):
    (tmp_path / "a.md").write_text(
        f"# Title\n\n```sh\nWho is code is refused.\n```\n- {text}\n| Who is | a table |\n"
    )
    [sentence] = sentences(tmp_path / "a.md")
    assert (sentence.line, turns(sentence)) == (6, named)


def test_words_are_counted(tmp_path):
    (tmp_path / "a.md").write_text(
        "A [link](x.md) and `walle run --all` are \ntwo words - no more. Then on.\n"
    )
    assert [each.words for each in sentences(tmp_path / "a.md")] == [9, 2]


def test_sentences_of_code_are_those_of_people(tmp_path):
    (tmp_path / "a.py").write_text(
        '"""One. Two `x y`.\\n\\nThree."""\n\n# a comment\n# of two lines\nx = f"{1} of {2} parts"\n'
    )
    found = [each.text for each in code_sentences(tmp_path / "a.py")]
    assert found == ["One.", "Two Code.", "Three.", "X of X parts", "a comment of two lines"]
