"""`python -m inference_fleet.backends.babbler serve|evaluate`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from inference_fleet.backends.babbler.model import corpus, load
from inference_fleet.backends.lifeline import end_with
from inference_fleet.settings.commands import Arguments
from inference_fleet.settings.loading import kept_for_life


def main(argv: list[str] | None = None) -> int:
    """The command's exit code: 0, 1 when the model is worse than knowing nothing, 2 for input it cannot use, as a taken port."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if options.command == "evaluate":
        from inference_fleet.backends.babbler.evaluation import evaluate  # noqa: PLC0415 - serving needs none of it

        result = evaluate(corpus())
        sys.stdout.write(result.text + "\n")
        return 0 if result.better else 1
    if options.parent_pid is not None:
        end_with(options.parent_pid)
    with kept_for_life():
        from inference_fleet.backends.babbler.service import serve  # noqa: PLC0415 - evaluating needs no server

    return serve(
        load(corpus(), options.data_dir),
        port=options.port,
        name=options.name,
        tokens_per_second=options.tokens_per_second,
        seed=options.seed,
    )


def _parser() -> Arguments:
    parser = Arguments(
        prog="python -m inference_fleet.backends.babbler", description="A small real language model."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("evaluate", help="held-out perplexity of the model and of the unigram model")
    serve = commands.add_parser("serve", help="answer chat requests on a loopback port")
    serve.add_argument("--port", type=_port, required=True)
    serve.add_argument("--name", default="babbler", help="the model name requests must carry")
    serve.add_argument("--tokens-per-second", type=_pace, default=0.0, help="0 speaks as fast as it can")
    serve.add_argument("--data-dir", type=Path, default=Path("data"), help="where the trained model is kept")
    serve.add_argument("--parent-pid", type=int, help="end when this process, which started us, ends")
    serve.add_argument("--seed", type=int, help="for requests that bring none; unset draws one each time")
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _pace(text: str) -> float:
    pace = float(text)
    if not 0 <= pace <= 10000:
        raise argparse.ArgumentTypeError(f"{text} is not a pace from 0 (none) to 10000 tokens a second")
    return pace


if __name__ == "__main__":
    sys.exit(main())
