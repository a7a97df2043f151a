"""Where Python searches modules: what is installed comes first, the current folder last.

So a command finds an environment, an agent or a preset in the folder where it was started, and
a seed.py, actors.py or queue.py of the user's there does no harm. Every process that a command
starts follows the same rule. Imports little: what it imports has to be found first, too.
"""

import contextlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# The folder that holds the packages themselves: a directory of installed packages, or a clone.
_HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

_SAFE_PATH = "PYTHONSAFEPATH"
# As good as "1" for Python; tells a new process that it was not set by the user.
_OURS = "seed"

# What `search_last` has added to `sys.path`.
_last: str | None = None


def search_current_folder() -> None:
    """Searches the current folder last. `python -m` searches it first, a console script not.

    In a clone of this project the folder stays where it is: the packages themselves are there.
    """
    with contextlib.suppress(FileNotFoundError):  # the folder has been removed
        folder = os.getcwd()
        if sys.path[0] in ("", folder) and os.path.realpath(folder) != _HOME:
            del sys.path[0]
        search_last(folder)


def search_last(folder: str) -> None:
    """Appends `folder` to the search path, unless it is searched already."""
    global _last
    if {folder, ""} & set(sys.path):  # an empty name stands for the current folder
        return
    sys.path.append(folder)
    _last = folder
    import pkgutil  # not at the top: the folder may still be first there

    files = pkgutil.get_importer(folder)
    if files is not None:
        sys.path_importer_cache[folder] = _LastFinder(files)


class _LastFinder:
    """Finds the modules of the folder that no other finder knows.

    A package that was installed as a link to a clone (`pip install --editable`) has a finder of
    its own, which Python asks after it has searched `sys.path`, and so after the folder.
    """

    def __init__(self, files: Any) -> None:
        """`files` is Python's own finder for the folder."""
        self._files = files

    def find_spec(self, name: str, target: Any = None) -> Any:
        """Called by Python's import system."""
        behind = sys.meta_path.index(importlib.machinery.PathFinder) + 1
        for finder in sys.meta_path[behind:]:
            if spec := finder.find_spec(name, None, target):
                return spec
        return self._files.find_spec(name, target)

    def invalidate_caches(self) -> None:
        """Called by Python's import system."""
        self._files.invalidate_caches()


def python_module(module: str, *arguments: str) -> list[str]:
    """Returns the command line `python -m module`, which runs an installed module.

    It does not search the current folder, unless the packages themselves are there.
    """
    in_clone = os.path.realpath(os.curdir) == _HOME
    return [sys.executable, *([] if in_clone else ["-P"]), "-m", module, *arguments]


@contextlib.contextmanager
def starting_processes() -> Iterator[None]:
    """Keeps the current folder out of the first imports of processes started in the context.

    `multiprocessing` starts Python in a way that searches the folder first, and then hands over
    `sys.path`. A `SpawnTarget` makes the process search the folder, last.
    """
    is_ours = not os.environ.get(_SAFE_PATH)
    if is_ours:
        os.environ[_SAFE_PATH] = _OURS
    is_removed = _last in sys.path
    if is_removed:
        sys.path.remove(str(_last))
    try:
        yield
    finally:
        if is_ours:
            os.environ.pop(_SAFE_PATH, None)
        if is_removed:
            sys.path.append(str(_last))


class SpawnTarget:
    """What a process that `multiprocessing` spawns calls, with the search path of its parent.

    The path is set when this object is unpickled, before the arguments of the call are: their
    classes may stand in the current folder.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self._function, _last)


def _arrive(function: Callable[..., Any], folder: str | None) -> SpawnTarget:
    """Runs in the new process."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]  # a Python that an environment starts is the user's own
    if folder is not None:
        search_last(folder)
    return SpawnTarget(function)


def spawn(
    context: Any, function: Callable[..., Any], arguments: Sequence[Any], *, name: str
) -> Any:
    """Starts a daemon process of `context`, as of `multiprocessing`, and returns it."""
    from seed import interrupts  # not at the top: what it imports has to be found first

    process = context.Process(
        target=SpawnTarget(function), args=tuple(arguments), name=name, daemon=True
    )
    with interrupts.kept_from_children(), starting_processes():
        process.start()
    return process
