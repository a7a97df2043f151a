"""The `seed actor` command: flags -> an actor that runs until it is told to stop.

Runs in the main thread of an actor process. Leaves connecting and stepping to `session.py`.
"""

import logging
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

from actors.args import ActorArgs
from actors.parent import end_with
from actors.session import ActorSession
from seed.allocator import keep_freed_memory
from seed.command_line import parse
from seed.errors import EnvironmentFailedError, SeedError, exit_code_of
from seed.help_page import Page
from seed.logs import json_log
from seed.stdout import write_whole_lines

_PAGE = Page(
    usage="seed actor --learner ADDRESS [flags]",
    examples=(
        "seed actor --learner 127.0.0.1:50051",
        "seed actor --learner h.example.org:50051 --tls-ca ca.pem --token-file token",
    ),
    most_used=("learner", "num_groups", "envs_per_group", "env_workers", "tls_ca", "token_file"),
)


def main(argv: Sequence[str]) -> int:
    """Runs an actor; returns the exit code of its process.

    0 after SIGTERM or Ctrl-C, or when the run is complete; 2 if a setting cannot work; 1 after
    any other error that waiting cannot cure.
    """
    # KeyboardInterrupt also ends a wait for the learner. SIGINT is set because a shell that
    # starts a process in the background makes it ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    keep_freed_memory()
    write_whole_lines()
    try:
        args = parse(ActorArgs, argv, prog="seed actor", page=_PAGE, once=("learner",))
        if args.log_format == "json":
            return _run_logging_json(args)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s actor: %(message)s")
        run(args, threading.Event())
    except KeyboardInterrupt:
        return 0
    except SeedError as error:
        if _has_traceback(error):
            traceback.print_exc()
        else:
            print(f"seed actor: {error}", file=sys.stderr)
        return exit_code_of(error)
    return 0


def _has_traceback(error: SeedError) -> bool:
    """Whether an environment's own code raised, in this process or in a worker."""
    is_of_code = error.__cause__ is not None or hasattr(error, "__notes__")
    return isinstance(error, EnvironmentFailedError) and is_of_code


def _run_logging_json(args: ActorArgs) -> int:
    try:
        with json_log("actor"):
            run(args, threading.Event())
    except Exception as error:
        return exit_code_of(error)  # logged already
    return 0


def run(args: ActorArgs, stop: threading.Event) -> None:
    """Steps environments until `stop` is set; raises SeedError when it cannot go on."""
    if args.exit_with_parent is not None:
        end_with(args.exit_with_parent)
    session = ActorSession(args)
    try:
        session.run(stop)
    finally:
        session.close()
