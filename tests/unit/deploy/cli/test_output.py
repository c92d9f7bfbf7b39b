import argparse
import json

from walle_deploy.cli.output import print_json, print_line


def test_what_others_wrote_moves_no_cursor(capsys):
    print_line("Ada: \x1b[2J\u202egone\u0085")
    assert capsys.readouterr().out == "Ada: ?[2J?gone?\n"


def test_json_is_one_line_with_all_that_was_written(capsys):
    assert print_json(argparse.Namespace(json=True), {"who": "A\x1b\u202e"})
    assert json.loads(capsys.readouterr().out) == {"who": "A\x1b\u202e"}
    assert not print_json(argparse.Namespace(json=False), {})
    assert capsys.readouterr().out == ""
