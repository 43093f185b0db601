"""The command line: all commands are listed, in groups, with help."""

import argparse
import importlib
import subprocess
import sys

import pytest
from support.runs import ENVIRONMENT, ROOT

from benchmarks.__main__ import COMMANDS, GROUPS, main


def test_commands_are_listed_in_groups(capsys):
    assert main([]) == 2
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    for command in COMMANDS:
        assert f"\n  {command} " in shown


def test_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fly"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert all(name in error for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command):
    module = importlib.import_module(f"benchmarks.{COMMANDS[command][0]}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    assert all(action.help for action in parser._actions)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"python -m benchmarks {command}" in capsys.readouterr().out


def test_help_starts_without_torch():
    code = "import sys; from benchmarks.__main__ import main; main([])\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, check=True, timeout=60
    )
