"""Every command takes its options before, between and behind its positionals, on every Python."""

import argparse
from collections import defaultdict

import pytest

from walle_stream.cli.parser import build_parser

_CANDIDATES = ("word", "1", "1s", "name=1", "http://127.0.0.1:1", f"1:{'0' * 64}")


class Commands:
    """The whole command line: its commands, and what may be given to each."""

    def __init__(self, monkeypatch):
        self._options, self._positionals, self._verbs = defaultdict(list), defaultdict(list), {}
        self._watch(monkeypatch)
        self.leaves = {}
        for command in ("", "task"):  # verbs of others are added to `task` where it is called
            self._descend(build_parser(command), ())

    def _watch(self, monkeypatch):
        parser = argparse.ArgumentParser
        add, group, verbs = (
            parser.add_argument,
            parser.add_mutually_exclusive_group,
            parser.add_subparsers,
        )

        def add_argument(made, *names, **options):
            action = add(made, *names, **options)
            if not action.option_strings:
                self._positionals[made].append(action)
            elif "-h" not in action.option_strings:
                self._options[made].append(action)
            return action

        def add_group(made, **options):
            found = group(made, **options)
            add_to_group, first = found.add_argument, []

            def add_first(*names, **options):
                action = add_to_group(*names, **options)
                if not first:  # the others cannot stand beside it
                    first.append(action)
                    self._options[made].append(action)
                return action

            found.add_argument = add_first
            return found

        def add_subparsers(made, **options):
            self._verbs[made] = verbs(made, **options)
            return self._verbs[made]

        monkeypatch.setattr(parser, "add_argument", add_argument)
        monkeypatch.setattr(parser, "add_mutually_exclusive_group", add_group)
        monkeypatch.setattr(parser, "add_subparsers", add_subparsers)

    def _descend(self, parser, words):
        if parser in self._verbs:
            for name, verb in self._verbs[parser].choices.items():
                self._descend(verb, (*words, name))
            return
        options = [[each.option_strings[-1], *values(each)] for each in self._options[parser]]
        positionals = [word for each in self._positionals[parser] for word in values(each)]
        self.leaves[words] = options, positionals


def values(action):
    if action.nargs == 0:
        return []
    if action.choices is not None:
        return [next(iter(action.choices))]
    word = next(word for word in _CANDIDATES if takes(action, word))
    if isinstance(action.nargs, int):
        return [word] * action.nargs
    return [word, word] if action.nargs in {"*", "+"} else [word]


def takes(action, word):
    try:
        (action.type or str)(word)
    except (argparse.ArgumentTypeError, ValueError):
        return False
    return True


def orders(options, positionals):
    """Yield all the options before, behind and at every place between, then spread one a place."""
    flat = [word for option in options for word in option]
    for cut in range(len(positionals) + 1):
        yield [*positionals[:cut], *flat, *positionals[cut:]]
    spread = list(options)
    mixed = []
    for positional in positionals:
        mixed += [*(spread.pop(0) if spread else []), positional]
    yield [*mixed, *(word for option in spread for word in option)]
    if options and positionals:  # what begins with a dash stands behind "--"
        yield [*positionals[:-1], *flat, "--", *positionals[-1:]]


def parse(words):
    found = vars(build_parser(words[0]).parse_args(words))
    return {name: value for name, value in found.items() if not callable(value)}


@pytest.fixture
def commands(monkeypatch):
    return Commands(monkeypatch).leaves


def test_options_and_positionals_of_every_command_stand_in_any_order(commands):
    assert ("task", "tag") in commands
    assert ("dead-letters", "replay") in commands
    for words, (options, positionals) in commands.items():
        first, *others = orders(options, positionals)
        expected = parse([*words, *first])
        for other in others:
            assert parse([*words, *other]) == expected, [*words, *other]


def test_an_optional_positional_may_stand_behind_an_option():
    found = parse(["task", "tag", "v1", "-m", "first version", "ipv"])
    assert (found["version"], found["message"], str(found["folder"])) == (
        *("v1", "first version"),
        "ipv",
    )


def test_what_begins_with_a_dash_stands_behind_two():
    found = parse(["task", "tag", "v1", "-m", "text", "--", "-x"])
    assert str(found["folder"]) == "-x"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task", "tag", "v1", "a", "--json", "b"], "unrecognized arguments: b"),
        (["task", "tag", "--json"], "required: VERSION"),
        (["features", "list"], "required: --data-dir"),
        (["dead-letters", "replay", "f", "--data-dir", "d", "--from-topic"], "not allowed with"),
        (["features"], "required: VERB"),
    ],
)
def test_what_is_missing_or_too_much_is_said(capsys, words, said):
    with pytest.raises(SystemExit) as failure:
        parse(words)
    assert failure.value.code == 2
    assert said in capsys.readouterr().err
