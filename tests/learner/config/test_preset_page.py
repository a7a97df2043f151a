"""The pages of commands that take a preset."""

from pathlib import Path

import pytest

from learner.config.args import LearnerArgs, TrainArgs
from learner.config.preset_page import check_preset_comes_first, list_of_presets, page_of_preset
from learner.config.presets import PRESETS
from seed.errors import ConfigError
from seed.flags import groups_of
from seed.help_page import render


@pytest.mark.parametrize(("command", "cls"), [("train", TrainArgs), ("learner", LearnerArgs)])
def test_most_used_flags_are_there(command: str, cls: type[LearnerArgs]) -> None:
    """A field that is renamed would leave its line out silently."""
    preset = PRESETS["atari-r2d2"]
    page = page_of_preset(command, "atari-r2d2", preset.help)
    printed = render(page, cls, cls(config=preset.config))
    top = printed.partition("most used")[2].partition("\n\n")[0]
    wanted = {"total-env-steps", "env-id", "envs-per-group", "learning-rate", "batch-size"}
    wanted |= {"rng-seed", "device", "run-dir", "resume"}
    wanted |= {"num-actors"} if command == "train" else {"listen"}
    assert {word[2:] for word in top.split() if word.startswith("--")} == wanted


@pytest.mark.parametrize("preset", ["catch-vtrace", "atari-r2d2"])
def test_page_is_readable(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that works stands at the top; 80 columns, and no text broken by the source."""
    monkeypatch.setenv("COLUMNS", "80")
    page = page_of_preset("train", preset, PRESETS[preset].help)
    lines = render(page, TrainArgs, TrainArgs(config=PRESETS[preset].config)).splitlines()
    assert f"  seed train {preset} --num-actors 2 --run-dir runs/mine" in lines[:8]
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    for group in groups_of(TrainArgs, TrainArgs(config=PRESETS[preset].config)):
        for flag in group.flags:
            assert " ".join(flag.text.split()) in text


def test_list_of_presets_names_each_with_its_text() -> None:
    """It says that the beginning of a name is enough."""
    printed = list_of_presets("train")
    assert all(f"  {name}" in printed and PRESETS[name].help in printed for name in PRESETS)
    assert "seed train catch" in printed


@pytest.mark.parametrize(
    ("argv", "right"),
    [
        (["--resume"], "seed train catch-vtrace --resume"),
        (["--num-actors", "2", "cartpole-r2d2"], "seed train cartpole-r2d2 --num-actors 2"),
        (["--env-kwargs", "{}", "catch"], "seed train catch --env-kwargs '{}'"),
    ],
)
def test_flags_before_the_preset_are_refused_with_what_is_right(
    argv: list[str], right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user can copy the command."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        check_preset_comes_first("train", argv)
    start = f"PRESET: expected a preset before the flags, got {argv[0]}; such as: "
    assert str(caught.value) == start + right


def test_resume_without_a_preset_names_that_of_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the run that was meant."""
    monkeypatch.chdir(tmp_path)
    Path("runs/memory-r2d2-20260101-000000/checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match="such as: seed train memory-r2d2 --resume$"):
        check_preset_comes_first("train", ["--resume"])
