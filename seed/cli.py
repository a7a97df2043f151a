"""The `seed` command: parse, then hand over to a role's main.

The only file of this package that imports the other two packages. It does so inside the
functions that need them: `seed actor` must work where torch is not installed.
"""

from seed import search_path

if __name__ == "__main__":  # before a queue.py of the current folder can be imported
    search_path.search_current_folder()

# isort: split
import importlib.metadata
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from seed import (
    interrupts,
    quiet_grpc,  # noqa: F401 (before anything imports gRPC)
)
from seed.cores import limit_native_threads
from seed.errors import SeedError, exit_code_of
from seed.extras import require_extra
from seed.stdout import stdout_to_stderr
from seed.suggestions import did_you_mean, full_name, near_names

Command = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `seed <command> ...`; returns the exit code.

    Args:
      argv: the command and its flags. None: those of this process, in which Ctrl-C then prints
        one line at any moment.
    """
    if argv is not None:
        return _run(argv)
    argv = sys.argv[1:]
    program = " ".join(["seed", *argv[:1]])
    interrupts.end_at_once(program)
    try:
        return _run_to_a_reader(argv)
    except KeyboardInterrupt:
        return interrupts.report(program)
    finally:
        interrupts.ignore()


_STDOUT = 1

# What a shell shows for a program that SIGPIPE ended, as `head` ends most programs.
_READER_HAS_LEFT = 141


def _run_to_a_reader(argv: Sequence[str]) -> int:
    """Runs a command whose reader, `head` for example, may leave before all is printed."""
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # At its end Python flushes again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        return _READER_HAS_LEFT


def _run(argv: Sequence[str]) -> int:
    if not argv:
        print(_GUIDE)
        return 2
    if argv[0] in _OTHER_WORDS:
        return _run_other_word(argv[0], argv[1:])
    name, rest = full_name(argv[0], COMMANDS), argv[1:]
    if name is None:
        return _refuse(argv)
    _, command = COMMANDS[name]
    search_path.search_current_folder()
    limit_native_threads()
    try:
        with _stdout_for(rest):
            return command(rest)
    except SeedError as error:
        print(f"seed {name}: {error}", file=sys.stderr)
        return exit_code_of(error)


_VERSION_WORDS = ("-V", "--version", "version")
_OTHER_WORDS = ("-h", "--help", "help", *_VERSION_WORDS)


def _run_other_word(word: str, rest: Sequence[str]) -> int:
    if word in _VERSION_WORDS:
        print(version())
        return 0
    if word == "help" and rest:
        return _run([*rest, "--help"])
    print(_help())
    return 0


def _refuse(argv: Sequence[str]) -> int:
    """Names the commands that may have been meant; returns the exit code."""
    word, rest = argv[0], argv[1:]
    candidates = [f"seed {name}" for name in near_names(word, COMMANDS)]
    if not candidates and _is_preset(word):
        candidates = [shlex.join(["seed", "train", word, *rest])]
    wanted = f"one of {', '.join(COMMANDS)}"
    problem = f"expected {wanted}, got {word!r}{did_you_mean(candidates)}"
    print(f"seed: {problem}", file=sys.stderr)
    return 2


def _is_preset(word: str) -> bool:
    from learner.config.presets import PRESETS

    return full_name(word, PRESETS) is not None


def version() -> str:
    """Returns the version of this package, and its commit where the code is a checkout."""
    from seed.provenance import git_commit

    try:
        number = importlib.metadata.version("seed-rl")
    except importlib.metadata.PackageNotFoundError:
        number = "not installed"
    commit = git_commit()
    return f"seed-rl {number}" + (f" ({commit})" if commit else "")


def _stdout_for(argv: Sequence[str]) -> AbstractContextManager[None]:
    """With --json: keeps off stdout what the modules of users, and their libraries, print."""
    is_json = "--json" in argv and not {"-h", "--help"} & set(argv)
    return stdout_to_stderr() if is_json else nullcontext()


def _announce(preset: str, log_format: str) -> None:
    """Says at once that the run starts: torch takes seconds to load."""
    if log_format == "text":
        print(f"starting {preset}: loading torch", file=sys.stderr, flush=True)


def _train(argv: Sequence[str]) -> int:
    from learner.config.args import TrainArgs, parse_preset
    from learner.config.presets import find_preset
    from learner.local_actors import ActorProcesses

    preset, args = parse_preset(TrainArgs, "train", argv)
    _announce(preset, args.log_format)
    require_extra("learner", "torch")
    require_extra("actor", "gymnasium")
    # Before torch is loaded, which takes seconds. A preset's own id is known to be right.
    if args.config.env.env_id != find_preset(preset).config.env.env_id:
        from actors.envs import check_env_id

        check_env_id(args.config.env)
    from learner.main import run_learner

    actors = ActorProcesses(
        args.num_actors,
        num_eval_actors=args.num_eval_actors,
        extra_args=(
            *("--env-workers", str(args.env_workers)),
            *("--env-timeout-s", str(args.env_timeout_s)),
        ),
        token_file=args.token_file,
        ingress_processes=args.config.learner.ingress_processes,
        share_memory=args.share_memory,
    )
    return run_learner(preset, args, actors)


def _learner(argv: Sequence[str]) -> int:
    from learner.config.args import LearnerArgs, parse_preset

    preset, args = parse_preset(LearnerArgs, "learner", argv)
    _announce(preset, args.log_format)
    require_extra("learner", "torch")
    from learner.main import run_learner

    return run_learner(preset, args)


def _actor(argv: Sequence[str]) -> int:
    require_extra("actor", "gymnasium")
    from actors.main import main as actor_main

    return actor_main(argv)


def _eval(argv: Sequence[str]) -> int:
    from learner.config.args import parse_eval
    from learner.local_actors import ActorProcesses

    args = parse_eval(argv)
    require_extra("learner", "torch")
    require_extra("actor", "gymnasium")

    actor_flags = ["--role", "eval"]
    if args.video is not None:
        _check_video(args.run)
        actor_flags += ["--video", str(args.video)]
    from learner.evaluation import run_evaluation

    return run_evaluation(args, ActorProcesses(1, extra_args=actor_flags))


def _check_video(run: Path) -> None:
    """Refuses a video that cannot be made before anything is loaded or started."""
    from actors.envs import check_video
    from learner.config.config_file import load_config
    from learner.config.run_dir import run_of

    check_video(load_config(run_of(run).config).env)


def _health(argv: Sequence[str]) -> int:
    from seed.health import main as health_main

    return health_main(argv)


def _bench(argv: Sequence[str]) -> int:
    from seed_bench.bench import main as bench_main

    require_extra("learner", "torch")
    require_extra("actor", "gymnasium")
    interrupts.raise_again()
    return bench_main(argv)


def _load(argv: Sequence[str]) -> int:
    from seed_bench.load import main as load_main

    require_extra("learner", "torch")
    require_extra("actor", "gymnasium")
    interrupts.raise_again()
    return load_main(argv)


COMMANDS: dict[str, tuple[str, Command]] = {
    "train": ("learner and local actors on this machine, in one command", _train),
    "learner": ("the learner alone; serves actors wherever they are", _learner),
    "actor": ("an actor; needs nothing but the learner's address", _actor),
    "eval": ("greedy full games from a checkpoint", _eval),
    "health": ("whether a learner serves: exit code 0 or 1, for container health checks", _health),
    "bench": ("ceilings of this machine, and where runs stand against them", _bench),
    "load": ("throughput, latency and memory of a learner against environments", _load),
}


def _help() -> str:
    lines = ["usage: seed COMMAND ...", "", "commands:"]
    lines += [f"  {name:8} {text}" for name, (text, _) in COMMANDS.items()]
    lines += [
        "",
        "`seed COMMAND --help` tells more about a command, `seed --version` which code runs.",
    ]
    return "\n".join(lines)


# What `seed` alone prints.
_GUIDE = """usage: seed COMMAND ...

  seed train                  the presets: what can be learned at once
  seed train catch-vtrace     learn a small game in seconds, with a live view
  seed eval RUN               play greedy games with what was learned; RUN is below runs/
  seed --help                 all commands; `seed COMMAND --help`: a command's flags"""


if __name__ == "__main__":
    sys.exit(main())
