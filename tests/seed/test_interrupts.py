"""seed/interrupts.py, and Ctrl-C at moments of real commands: processes that get SIGINT."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seed import interrupts

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 60

# Stands for a module on the search path, and stops at its import.
_STOPS_HERE = "import os, time\nos.write(1, b'here\\n')\ntime.sleep(60)\n"


def _start(*command: str, path: Path | None = None, cwd: Path = ROOT) -> subprocess.Popen[str]:
    search = os.pathsep.join(str(folder) for folder in (path, ROOT) if folder is not None)
    return subprocess.Popen(
        [sys.executable, "-u", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": search},
        process_group=0,
    )


def _interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Sends Ctrl-C to the process and its children, as a terminal does; returns how it ends."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("grpc", ["train", "cartpole-vtrace"]),
        ("tyro", ["train", "cartpole-vtrace"]),
        ("torch", ["learner", "cartpole-vtrace"]),
        ("torch", ["eval", "docs"]),  # a folder, which may be a run
        ("gymnasium", ["actor", "--learner", "127.0.0.1:1"]),
    ],
)
def test_interrupt_during_an_import_is_one_line(
    module: str, command: list[str], tmp_path: Path
) -> None:
    """The exit code is that of Ctrl-C, and nothing else is said, whatever is being imported."""
    (tmp_path / f"{module}.py").write_text(_STOPS_HERE)
    process = _start("-m", "seed.cli", *command, path=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    code, _, err = _interrupted(process)
    assert code == interrupts.EXIT_CODE == 130
    lines = [line for line in err.splitlines() if not line.startswith("starting ")]
    assert lines == [f"seed {command[0]}: interrupted"]


def test_first_line_comes_before_torch_is_loaded(tmp_path: Path) -> None:
    """A newcomer sees that something happens; stdout stays free for --json."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is loaded')")
    process = _start("-m", "seed.cli", "train", "cartpole-vtrace", "--json", path=tmp_path)
    out, err = process.communicate(timeout=_TIMEOUT_S)
    assert (out, err) == ("", "starting cartpole-vtrace: loading torch\ntorch is loaded\n")


def _children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _has_ended(process: int) -> bool:
    """Waits for the process behind a descriptor; False if it still runs after a while."""
    return bool(select.select([process], [], [], _TIMEOUT_S)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("moment", "last_words"),
    [
        ("trainer is process", "stopped before the first env step; nothing is saved"),
        ("listening on", "stopped before the first env step; nothing is saved"),
        ("local actor 0 is process", ""),
        (r" [1-9][\d,]* of 1,000,000 env steps", "saved in "),
    ],
)
def test_interrupt_of_a_starting_run_ends_all_its_processes(
    moment: str, last_words: str, tmp_path: Path
) -> None:
    """From the trainer process's first import to the first env steps: no traceback, exit code 0,
    and no process is left."""
    flags = ["--run-dir", "run", "--report-every-s", "0.2", "--total-env-steps", "1000000"]
    process = _start("-m", "seed.cli", "train", "cartpole-vtrace", *flags, cwd=tmp_path)
    assert process.stderr is not None
    seen = ""
    while not re.search(moment, seen):
        line = process.stderr.readline()
        assert line, seen
        seen += line
    children = [os.pidfd_open(child) for child in _children_of(process.pid)]
    assert children
    code, out, err = _interrupted(process)
    assert (code, "Traceback" in seen + err) == (0, False), seen + err
    assert last_words in out
    assert all(map(_has_ended, children))


def test_second_interrupt_while_a_command_ends_does_nothing(tmp_path: Path) -> None:
    """At exit an interpreter waits for threads; a second Ctrl-C there printed a traceback."""
    (tmp_path / "late.py").write_text(
        "import atexit, os, sys, time\n"
        "from seed import cli\n"
        "atexit.register(lambda: (os.write(1, b'ending\\n'), sys.stdin.read()))\n"
        "sys.argv[1:] = ['--help']\n"
        "sys.exit(cli.main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "late.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    while process.stdout.readline() != "ending\n":
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate("", timeout=_TIMEOUT_S)
    assert (process.returncode, err) == (0, "")


def test_keyboard_interrupt_of_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that clean up on KeyboardInterrupt end with the same line."""
    from seed import cli

    def interrupted(argv: object) -> int:
        interrupts.raise_again()
        signal.raise_signal(signal.SIGINT)
        return 0

    former = signal.getsignal(signal.SIGINT)
    monkeypatch.setitem(cli.COMMANDS, "bench", ("", interrupted))
    monkeypatch.setattr(sys, "argv", ["seed", "bench"])
    try:
        assert cli.main() == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)
    assert capsys.readouterr().err == "seed bench: interrupted\n"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_child_does_not_get_the_interrupt_until_it_lets_it_through() -> None:
    """A child started inside prints no KeyboardInterrupt; afterwards the mask is as before."""
    program = (
        "import signal, sys; from seed import interrupts\n"
        "signal.raise_signal(signal.SIGINT); print('still here', flush=True)\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit('let through'))\n"
        "interrupts.let_through()\n"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with interrupts.kept_from_children():
        child = _start("-c", program)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    out, err = child.communicate(timeout=_TIMEOUT_S)
    assert (out, err) == ("still here\n", "let through\n")
