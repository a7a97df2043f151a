"""The checkpoints of a run side by side: their order, which are kept, and `latest`.

Called by the trainer thread when it saves, and at start-up. A save must not fail because a file
system refuses what the run can do without: a symlink, or to remove an old checkpoint at once.
"""

import contextlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from learner.checkpoints.files import META, REPLAY, UNSUPPORTED, copy_files, read_meta, sync
from seed.errors import CheckpointError

_LOG = logging.getLogger(__name__)

BEST = "best"
LATEST = "latest"
ASIDE = ".tmp-"
REPLACED = ".replaced-"

# What each directory was warned of, so that no save repeats it.
_warned: set[tuple[Path, str]] = set()


def newest_first(directory: Path) -> list[Path]:
    """Returns the checkpoints whose meta.json can be read, the one saved last first.

    The best checkpoint is not among them. Sorted by the number that each save gets, because
    clocks are set back, and because a run resumed from an older checkpoint begins a new branch
    at a lower step. Checkpoints of earlier versions have no number: they are older than all
    that have one, and among themselves sorted by time.
    """
    found = []
    for path in directory.iterdir():
        if _is_checkpoint_name(path):
            with contextlib.suppress(CheckpointError):
                found.append((_order(read_meta(path)), path))
    return [path for _, path in sorted(found, reverse=True)]


def best_in(directory: Path) -> Path | None:
    """Returns the best checkpoint, which a kill may have left under its other name."""
    for path in (directory / BEST, *directory.glob(f"{REPLACED}{BEST}*")):
        with contextlib.suppress(CheckpointError):
            read_meta(path)
            return path
    return None


def next_save_number(directory: Path) -> int:
    """Returns a number above those of all checkpoints there are."""
    best = best_in(directory)
    paths = [*newest_first(directory), *([best] if best else [])]
    return 1 + max((_order(read_meta(path))[0] for path in paths), default=0)


def was_ever_saved(directory: Path) -> bool:
    """Tells whether a run ever finished a checkpoint, even if it is damaged now.

    A kill during the first save leaves only the unfinished checkpoint. Files of other programs
    (.DS_Store, .nfs..., lost+found) do not count.
    """
    if not directory.is_dir():
        return False
    return any(
        _is_checkpoint_name(path) or _given_name(path) == BEST for path in directory.iterdir()
    )


def unused(path: Path) -> Path:
    """Returns `path`, or `path` with a number appended if there is such a file already."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(1))
    return next(path for path in itertools.chain([path], numbered) if not os.path.lexists(path))


def finish_interrupted(directory: Path) -> None:
    """Completes or removes the remains of an earlier save that a kill interrupted."""
    for stale in directory.glob(f"{ASIDE}*"):
        with _warns_once(directory, "remove the remains of a save"):
            _remove(stale)
    for replaced in directory.glob(f"{REPLACED}*"):
        with _warns_once(directory, "remove the remains of a save"):
            _give_name(replaced, _given_name(replaced))
    latest = directory / LATEST
    if _is_copy_of_latest(latest):
        with contextlib.suppress(CheckpointError), _warns_once(directory, "replace latest"):
            _give_name(latest, str(read_meta(latest)["learner_step"]))


def move_into_place(aside: Path, path: Path) -> None:
    """Gives a whole checkpoint its name; one that has the name already is removed.

    Raises:
      OSError: there is no room or no permission.
    """
    replaced = unused(path.with_name(f"{REPLACED}{path.name}"))
    # A directory cannot be replaced by a rename, so the old one is renamed first. Between the
    # two renames it is found under its other name.
    if path.exists():
        _rename(path, replaced)
    _rename(aside, path)
    sync(path.parent)
    if replaced.exists():
        with _warns_once(path.parent, "remove old checkpoints"):
            _discard(replaced)


def point_latest_to(path: Path) -> None:
    """Points the symlink `latest` to a checkpoint, for people and scripts.

    `load_checkpoint` does not need it: some network shares and cloud mounts have no symlinks.
    """
    latest = path.with_name(LATEST)
    with _warns_once(path.parent, "make the symlink latest, which SEED itself does not need"):
        link = unused(path.with_name(f"{ASIDE}{LATEST}"))
        try:
            link.symlink_to(path.name)
            os.replace(link, latest)
            sync(path.parent)
        except OSError:
            # A link that stays behind would name an old checkpoint.
            for stale in (link, latest):
                if stale.is_symlink():
                    stale.unlink()
            raise


def prune(directory: Path, newest: Path, keep: int) -> None:
    """Removes all but `newest` and the `keep` - 1 checkpoints saved last before it.

    Only the newest checkpoint keeps its replay. A checkpoint that cannot be removed, because
    somebody reads it or for lack of permission, is tried again at the next save.
    """
    older = [path for path in newest_first(directory) if path != newest]
    for path in older[keep - 1 :]:
        with _warns_once(directory, "remove old checkpoints"):
            _discard(path)
    for path in older[: keep - 1]:
        with _warns_once(directory, "remove old replays"):
            (path / REPLAY).unlink(missing_ok=True)


def _is_checkpoint_name(path: Path) -> bool:
    return _given_name(path).isdecimal() or _is_copy_of_latest(path)


def _given_name(path: Path) -> str:
    """Returns "1200" for 1200, .replaced-1200 and .replaced-1200-1."""
    if not path.name.startswith(REPLACED):
        return path.name
    return path.name.removeprefix(REPLACED).partition("-")[0]


def _is_copy_of_latest(path: Path) -> bool:
    """Tells whether a copy of the run followed the link `latest`, as scp -r and rsync -L do."""
    return path.name == LATEST and not path.is_symlink() and path.is_dir()


def _order(meta: dict[str, Any]) -> tuple[int, float, int]:
    number = meta.get("save_number")
    return (number if isinstance(number, int) else 0, meta["saved_at_s"], meta["learner_step"])


def _give_name(path: Path, name: str) -> None:
    """Gives a checkpoint its name back; removes it if there is another of that name."""
    named = path.with_name(name)
    if named.exists():
        _discard(path)
    else:
        _rename(path, named)


def _rename(source: Path, target: Path) -> None:
    """Renames a checkpoint; copies it where the file system renames no directory."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        copy_files(source, target)
        with _warns_once(source.parent, "remove what was copied"):
            _remove(source)


def _discard(path: Path) -> None:
    """Removes a checkpoint, so that no reader finds half of it."""
    doomed = unused(path.with_name(f"{ASIDE}pruned-{path.name}"))
    try:
        os.rename(path, doomed)
    except OSError:
        doomed = path
    _remove(doomed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Without its meta.json nothing is a checkpoint.
        (path / META).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def _warns_once(directory: Path, action: str) -> Iterator[None]:
    """Goes on where the file system refuses `action`; says so once for each directory."""
    try:
        yield
    except OSError as error:
        if (directory, action) not in _warned:
            _warned.add((directory, action))
            _LOG.warning("%s: cannot %s (%s); saving goes on", directory, action, error)
