"""The one form in which a service's command refuses what it was given."""

from __future__ import annotations

import pytest

from inference_fleet.settings.commands import BAD_INPUT, Arguments, complain


def parser() -> Arguments:
    made = Arguments(prog="python -m spec")
    made.add_argument("--port", type=int)
    made.add_argument("--name", required=True)
    return made


def test_a_complaint_is_one_line_and_gives_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain("a=b: no; try: c") == BAD_INPUT
    assert complain("a=b: no; try: c", 1) == 1
    assert capsys.readouterr().err == "blackstart: a=b: no; try: c\n" * 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--name", "n", "--what"], "argument=--what: no such argument"),
        (["--name", "n", "a\nb"], r"argument=a\nb: no such argument"),
        ([], "argument=--name: missing"),
        (["--name", "n", "--port", "x"], "argument=--port: invalid int value: 'x'"),
        (["--name"], "argument=--name: expected one argument"),
        (["--name", "n", "--por", "1"], "argument=--por 1: no such argument"),
    ],
)
def test_a_wrong_argument_is_named_with_its_remedy(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(argv)
    assert caught.value.code == BAD_INPUT
    assert capsys.readouterr().err == f"blackstart: {said}; try: python -m spec --help\n"
