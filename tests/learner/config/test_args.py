"""Command lines: presets, flags, and the directory of a run."""

import dataclasses
import os
from pathlib import Path

import pytest

from learner.config.agent_config import AgentConfig, R2D2Config, VTraceConfig
from learner.config.args import EvalArgs, LearnerArgs, TrainArgs, parse_eval, parse_preset
from learner.config.config_file import dump_config, load_config
from learner.config.presets import PRESETS
from seed.errors import ConfigError
from tests.support.plugins import install, write_module


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to an empty directory, since runs/ is looked for in the current one."""
    monkeypatch.chdir(tmp_path)


def parse(*argv: str) -> LearnerArgs:
    """Returns the arguments of `seed learner`."""
    return parse_preset(LearnerArgs, "learner", argv)[1]


def run_dir_of(*argv: str) -> Path:
    """Returns the run directory of a command line."""
    run_dir = parse(*argv).run_dir
    assert run_dir is not None
    return run_dir


def make_run(run_dir: str, preset: str = "cartpole-vtrace", *, age_s: float = 0.0) -> Path:
    """Makes a run directory with a checkpoint, last changed `age_s` seconds before a fixed time."""
    path = Path(run_dir)
    (path / "checkpoints").mkdir(parents=True)
    dump_config(PRESETS[preset].config, path / "config.yaml", name=preset)
    (path / "metrics.jsonl").touch()
    changed_at = 1_700_000_000 - age_s
    os.utime(path, (changed_at, changed_at))
    return path


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_without_flags_is_the_preset(preset: str) -> None:
    """Every value is the one that the preset's author set."""
    name, args = parse_preset(LearnerArgs, "learner", [preset])
    assert name == preset
    assert args.config == PRESETS[preset].config


def test_flags_change_their_fields_alone() -> None:
    """A flag has its field's short name, wherever in the config the field is."""
    args = parse(
        "cartpole-vtrace",
        *("--env-id", "Acrobot-v1"),
        *("--learning-rate", "0.5"),
        *("--total-env-steps", "77"),
        *("--lstm-size", "32"),
        *("--frame-skip", "3"),
        *("--hidden-sizes", "5", "6", "7"),
        *("--entropy-target", "0.25"),
    )
    base = PRESETS["cartpole-vtrace"].config
    atari = dataclasses.replace(base.env.atari, frame_skip=3)
    assert args.config == dataclasses.replace(
        base,
        env=dataclasses.replace(base.env, env_id="Acrobot-v1", atari=atari),
        optimizer=dataclasses.replace(base.optimizer, learning_rate=0.5),
        learner=dataclasses.replace(base.learner, total_env_steps=77),
        network=dataclasses.replace(base.network, lstm_size=32, hidden_sizes=(5, 6, 7)),
        agent=dataclasses.replace(base.agent, entropy_target=0.25),
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--device", "cpu"),
        ("--envs-per-group", "4"),
        ("--rng-seed", "3"),
        ("--checkpoint-every-s", "60"),
        ("--run-dir", "here"),
        ("--listen", "unix:a", "127.0.0.1:0"),
        ("--insecure",),
        ("--json",),
    ],
    ids=lambda flags: flags[0],
)
def test_promised_flags_exist_for_both_commands(flags: tuple[str, ...]) -> None:
    """Each flag has the same meaning for both commands."""
    parse_preset(LearnerArgs, "learner", ["cartpole-vtrace", *flags])
    parse_preset(TrainArgs, "train", ["cartpole-vtrace", *flags])


def test_train_adds_local_actors_and_listens_to_no_others() -> None:
    """The local actors have a private socket."""
    _, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace"])
    assert (args.num_actors, args.listen) == (1, ())
    _, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace", "--num-actors", "3"])
    assert args.num_actors == 3


def test_train_evaluates_only_if_asked_to() -> None:
    """By default there is no evaluation, since it takes time from training."""
    _, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace"])
    assert args.num_eval_actors == 0
    _, args = parse_preset(TrainArgs, "train", ["cartpole-vtrace", "--num-eval-actors", "2"])
    assert (args.num_actors, args.num_eval_actors) == (1, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--learning-rate", "-1"), "learning_rate: expected 0 or more, got -1.0"),
        (("--learning-rate", "fast"), "--learning-rate"),
        (("--torso", "vgg"), "torso: expected one of 'auto', 'mlp', "),
        (("--no-such-flag", "1"), "--no-such-flag"),
        (("--num-actors", "-1"), "num_actors: expected 0 or more, got -1"),
        (("--num-eval-actors", "-1"), "num_eval_actors: expected 0 or more, got -1"),
        (("--tls-cert", "x"), "tls_key: expected both"),
        (("--tls-ca", "x"), "tls_cert: expected a file, with --tls-ca"),
        (("--metrics-port", "-1"), "metrics_port: expected 0 .. 65535, got -1"),
        (("--log-format", "xml"), "--log-format"),
        (("--listen", "http://h:1"), "listen: expected host:port or unix:PATH, such as h:1, got"),
        (("--listen", "a:1", "[::1"), "listen: expected host:port"),
        (("--metrics-host", "h:1"), "metrics_host: expected an IP address or a host's name"),
        (("--listen", "a:1", "--listen", "b:2"), "listen: expected all values behind one --listen"),
        (("--hidden-sizes", "1", "--hidden-sizes", "2"), "hidden_sizes: expected all values"),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_bad_flag_exits_with_2_and_names_it(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs, and nothing goes to stdout."""
    with pytest.raises(SystemExit) as caught:
        parse_preset(TrainArgs, "train", ["cartpole-vtrace", *flags])
    captured = capsys.readouterr()
    assert caught.value.code == 2
    assert message in captured.err
    assert captured.out == ""


def test_unknown_preset_is_refused_with_those_there_are() -> None:
    """The error lists the presets, so that the user need not look them up."""
    with pytest.raises(ConfigError) as caught:
        parse("pong")
    message = str(caught.value)
    assert message.startswith("PRESET: expected one of ")
    assert ", or module:Name, got 'pong'; did you mean `atari-vtrace` or " in message
    assert all(name in message for name in PRESETS)


def test_preset_may_be_spelled_roughly() -> None:
    """Its run has the full name all the same."""
    name, args = parse_preset(LearnerArgs, "learner", ["Catch_"])
    assert (name, args.config) == ("catch-vtrace", PRESETS["catch-vtrace"].config)


@pytest.mark.parametrize(("argv", "code"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_help_lists_the_presets(
    argv: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help that was asked for exits 0, and a missing preset does not."""
    with pytest.raises(SystemExit) as caught:
        parse_preset(TrainArgs, "train", argv)
    assert caught.value.code == code
    printed = capsys.readouterr().out
    assert printed.startswith("usage: seed train PRESET [flags]")
    assert all(f"{name} " in printed and PRESETS[name].help in printed for name in PRESETS)


def test_help_of_a_preset_shows_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    """The help holds the text of every field and exits 0."""
    with pytest.raises(SystemExit) as caught:
        parse("atari-vtrace", "--help")
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "impala_deep" in printed
    assert "--unroll-length" in printed
    assert "transitions in an unroll" in printed


def test_new_run_directory_gets_its_name_when_it_is_made() -> None:
    """Until then another run could take the name."""
    assert parse("atari-vtrace").run_dir is None


def test_run_directory_of_an_earlier_run_is_refused() -> None:
    """Two runs would mix their files; a directory that is empty may be given."""
    make_run("old")
    with pytest.raises(ConfigError, match="^run_dir: expected a new directory, or --resume, got"):
        parse("cartpole-vtrace", "--run-dir", "old")
    Path("new").mkdir()
    assert run_dir_of("cartpole-vtrace", "--run-dir", "new") == Path("new")


def test_run_directory_of_a_start_that_failed_is_taken() -> None:
    """The corrected command needs no other flags than those that were wrong."""
    Path("failed").mkdir()
    config = PRESETS["memory-r2d2"].config
    dump_config(config, Path("failed/config.yaml"), name="memory-r2d2")
    Path("failed/metrics.jsonl").write_text('{"env_steps": 0}\n')
    for resume in ((), ("--resume",)):
        args = parse("cartpole-vtrace", "--run-dir", "failed", *resume)
        assert args.config == PRESETS["cartpole-vtrace"].config


def test_resume_takes_the_newest_run_of_the_preset() -> None:
    """The newest is found by its time of change, since clocks are set back and runs renamed."""
    make_run("runs/cartpole-vtrace-20260103-000000", age_s=30)
    newest = make_run("runs/cartpole-vtrace-20260101-000000", age_s=10)
    make_run("runs/cartpole-vtrace-20260102-000000", age_s=20)
    assert run_dir_of("cartpole-vtrace", "--resume") == newest


def test_resume_ignores_presets_whose_name_begins_alike() -> None:
    """The runs of atari-vtrace are not those of atari-vtrace-cpu."""
    own = make_run("runs/atari-vtrace-20260101-000000", "atari-vtrace", age_s=100)
    make_run("runs/atari-vtrace-cpu-20260102-000000", "atari-vtrace-cpu")
    assert run_dir_of("atari-vtrace", "--resume") == own


def test_resume_without_an_earlier_run_is_refused() -> None:
    """A run that never saved a checkpoint does not count."""
    Path("runs/cartpole-vtrace-20260101-000000").mkdir(parents=True)
    make_run("runs/atari-vtrace-20260102-000000", "atari-vtrace")
    with pytest.raises(ConfigError, match="^resume: expected an earlier run"):
        parse("cartpole-vtrace", "--resume")


def test_resume_of_a_directory_without_a_run_starts_afresh() -> None:
    """A supervisor gives the same command at the first start and at every restart."""
    args = parse("cartpole-vtrace", "--run-dir", "new", "--resume", "--lstm-size", "3")
    assert args.run_dir == Path("new")
    assert args.config.network.lstm_size == 3


def test_resume_goes_on_with_the_runs_own_config_and_the_flags_given_now() -> None:
    """Flags given now win over those of the run, and those of the run win over the preset."""
    path = make_run("old")
    config = PRESETS["cartpole-vtrace"].config
    then = dataclasses.replace(
        config,
        network=dataclasses.replace(config.network, lstm_size=17),
        learner=dataclasses.replace(config.learner, total_env_steps=5),
    )
    dump_config(then, path / "config.yaml", name="cartpole-vtrace")
    args = parse("cartpole-vtrace", "--run-dir", "old", "--resume", "--total-env-steps", "9")
    expected = dataclasses.replace(then.learner, total_env_steps=9)
    assert args.config == dataclasses.replace(then, learner=expected)
    assert args.resume


def test_resume_of_a_run_with_a_broken_config_is_refused() -> None:
    """The run does not go on with another config."""
    path = make_run("old")
    (path / "config.yaml").write_text("network: {lstm_sise: 4}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="config.yaml: network.lstm_sise: unknown field"):
        parse("cartpole-vtrace", "--run-dir", "old", "--resume")


@pytest.mark.parametrize(
    ("preset", "flags", "message"),
    [
        ("memory-r2d2", (), "preset: expected 'cartpole-vtrace', the preset of the run in old,"),
        ("cartpole-r2d2", (), "preset: expected 'cartpole-vtrace', the preset of the run in old,"),
        (
            "cartpole-vtrace",
            ("--env-id", "Acrobot-v1"),
            "env_id: expected 'CartPole-v1', the environment of the run in old, got 'Acrobot-v1'; "
            "another --run-dir starts a new run",
        ),
    ],
)
def test_resume_of_another_run_than_the_command_names_is_refused(
    preset: str, flags: tuple[str, ...], message: str
) -> None:
    """The run in the directory would go on, as if the command had not named a preset."""
    make_run("old")
    with pytest.raises(ConfigError, match=f"^{message}"):
        parse(preset, "--run-dir", "old", "--resume", *flags)


def test_agent_is_changed_by_its_name() -> None:
    """Another built-in agent brings its own flags with their own defaults."""
    flags = ("--agent=r2d2", "--burn-in", "3", "--total-env-steps", "500000")
    args = parse("cartpole-vtrace", *flags)
    assert args.config.agent == R2D2Config(burn_in=3)
    base = PRESETS["cartpole-vtrace"].config
    learner = dataclasses.replace(base.learner, total_env_steps=500_000)
    assert dataclasses.replace(args.config, agent=base.agent) == dataclasses.replace(
        base, learner=learner
    )


def test_agent_that_does_not_fit_the_rest_of_the_preset_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CartPole's V-trace ends before R2D2's default replay is full enough to train on."""
    with pytest.raises(SystemExit) as caught:
        parse("cartpole-vtrace", "--agent", "r2d2")
    assert caught.value.code == 2
    assert "total_env_steps: expected more than the 400000" in capsys.readouterr().err


def test_naming_the_presets_own_agent_changes_nothing() -> None:
    """The values of the preset stay."""
    args = parse("cartpole-vtrace", "--agent", "vtrace")
    assert args.config == PRESETS["cartpole-vtrace"].config


def test_last_agent_named_counts() -> None:
    """As with every other flag, the last one counts."""
    flags = ("--agent", "r2d2", "--agent", "curious_agent:Curious", "--agent", "vtrace")
    assert parse("cartpole-vtrace", *flags).config == PRESETS["cartpole-vtrace"].config


def test_fields_of_another_packages_agent_are_flags(curious: type[AgentConfig]) -> None:
    """The command line does not need to know the fields."""
    flags = ("--agent", "curious_agent:Curious", "--curiosity", "0.1", "--shape", "4", "5")
    args = parse("cartpole-vtrace", *flags, "--batch-size", "7")
    values = {"algorithm": "curious_agent:Curious", "curiosity": 0.1, "shape": (4, 5)}
    assert args.config.agent == curious(batch_size=7, **values)


def test_help_shows_the_flags_of_another_packages_agent(
    curious: type[AgentConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows the text of each field, and no flags of other agents."""
    del curious
    with pytest.raises(SystemExit) as caught:
        parse("cartpole-vtrace", "--agent", "curious_agent:Curious", "--help")
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "--curiosity FLOAT" in printed and "Weight of what is new." in printed
    assert "--unroll-length" not in printed


def test_flags_of_an_agent_that_was_not_asked_for_are_refused(
    curious: type[AgentConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """This includes the flags of the preset's own agent."""
    del curious
    with pytest.raises(SystemExit) as caught:
        parse("cartpole-vtrace", "--agent", "curious_agent:Curious", "--unroll-length", "3")
    assert caught.value.code == 2
    assert "--unroll-length" in capsys.readouterr().err


def test_agent_with_the_same_config_takes_over_the_presets_values(
    curious: type[AgentConfig],
) -> None:
    """A variant of V-trace starts from values that suit V-trace."""
    del curious
    args = parse("cartpole-vtrace", "--agent", "curious_agent:LikeVTrace")
    own = PRESETS["cartpole-vtrace"].config.agent
    assert args.config.agent == dataclasses.replace(own, algorithm="curious_agent:LikeVTrace")
    assert isinstance(args.config.agent, VTraceConfig)


def test_unknown_agent_is_refused_with_those_there_are() -> None:
    """No other flag is read before."""
    with pytest.raises(ConfigError, match="^agent: expected one of 'vtrace', 'r2d2', or mod"):
        parse("cartpole-vtrace", "--agent", "dqn", "--no-such-flag")


def test_resumed_run_keeps_its_agent(curious: type[AgentConfig]) -> None:
    """The run's agent decides the flags, although the command names only the preset."""
    flags = ("cartpole-vtrace", "--run-dir", "old")
    first = parse(*flags, "--agent", "curious_agent:Curious", "--curiosity", "0.1")
    dump_config(first.config, make_run("old") / "config.yaml", name="cartpole-vtrace")
    args = parse(*flags, "--resume", "--shape", "9")
    values = {"algorithm": "curious_agent:Curious", "curiosity": 0.1, "shape": (9,)}
    assert args.config.agent == curious(**values)
    assert parse(*flags, "--resume", "--agent", "curious_agent:Curious").config == first.config
    wanted = "^agent: expected 'curious_agent:Curious', the agent of the run in old, got 'r2d2'"
    with pytest.raises(ConfigError, match=wanted):
        parse(*flags, "--resume", "--agent", "r2d2")


def test_preset_of_a_module_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run directory has the preset's name, without characters that a path cannot hold."""
    source = """
from learner.config.presets import PRESETS, Preset
SLOW = Preset("Slow.", PRESETS["catch-vtrace"].config)
WRONG = PRESETS["catch-vtrace"].config
"""
    write_module(tmp_path, "my_presets.py", source)
    monkeypatch.syspath_prepend(tmp_path)
    name, args = parse_preset(LearnerArgs, "learner", ["my_presets:SLOW", "--rng-seed", "5"])
    assert name == "my_presets:SLOW"
    assert args.config == dataclasses.replace(PRESETS["catch-vtrace"].config, rng_seed=5)
    assert args.run_dir is None
    own = make_run("runs/my_presets-SLOW-20260101-000000")
    dump_config(args.config, own / "config.yaml", name="my_presets:SLOW")
    assert run_dir_of("my_presets:SLOW", "--resume") == own
    with pytest.raises(ConfigError, match=r"^PRESET: expected a Preset\(help, RunConfig\)"):
        parse("my_presets:WRONG")


def test_help_lists_the_presets_of_installed_packages_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that cannot be imported is listed too."""
    install(tmp_path, "far-presets", {"seed_rl.presets": {"far-off": "no_such_module:FAR"}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        parse("--help")
    assert "  far-off            Of the installed package far-presets.\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="^PRESET: expected a module .*'no_such_module'"):
        parse("far-off")


def test_help_of_a_run_directory_in_use_is_still_help() -> None:
    """Help does not check whether a run can be started in the directory."""
    make_run("old")
    with pytest.raises(SystemExit) as caught:
        parse("cartpole-vtrace", "--run-dir", "old", "--help")
    assert caught.value.code == 0


def test_eval_takes_a_run_and_little_else() -> None:
    """The defaults of the command hold for the rest."""
    make_run("runs/x")
    args = parse_eval(["runs/x", "--episodes", "3"])
    assert (args.run, args.episodes, args.video, args.json) == (Path("runs/x"), 3, None, False)


def test_eval_without_a_run_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is not there is refused before torch is loaded."""
    make_run("runs/x")
    with pytest.raises(ConfigError, match="got y, which does not exist; did you mean `runs/x`?"):
        parse_eval(["y"])
    with pytest.raises(SystemExit) as caught:
        parse_eval([])
    assert caught.value.code == 2
    assert "RUN: expected the directory of a run or of a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("episodes", "num_envs", "used"), [(20, 0, 8), (3, 0, 3), (20, 5, 5), (4, 16, 4)]
)
def test_eval_steps_no_more_environments_than_there_are_games(
    episodes: int, num_envs: int, used: int
) -> None:
    """An environment without a game to play would only cost time."""
    args = EvalArgs(run=Path("x"), episodes=episodes, num_envs=num_envs)
    assert args.num_envs_used == used


def test_video_shows_one_environment() -> None:
    """Several environments together with a video are refused."""
    assert EvalArgs(run=Path("x"), video=Path("v.mp4")).num_envs_used == 1
    with pytest.raises(ConfigError, match="^num_envs: expected 1 with --video, got 4"):
        EvalArgs(run=Path("x"), video=Path("v.mp4"), num_envs=4)


def test_eval_of_nothing_is_refused() -> None:
    """An evaluation of no games has no mean."""
    with pytest.raises(ConfigError, match="^episodes: expected at least 1, got 0"):
        EvalArgs(run=Path("x"), episodes=0)
    with pytest.raises(ConfigError, match="^num_envs: expected 0 or more, got -1"):
        EvalArgs(run=Path("x"), num_envs=-1)


def test_time_limit_is_a_flag_and_stays_in_the_config() -> None:
    """`seed eval` and a resumed run then have the same limit."""
    config = parse("cartpole-vtrace", "--max-episode-steps", "25").config
    assert config.env.max_episode_steps == 25
    dump_config(config, Path("config.yaml"), name="cartpole-vtrace")
    assert load_config(Path("config.yaml")).env.max_episode_steps == 25
    with pytest.raises(ConfigError, match="max_episode_steps: expected at least 1"):
        EvalArgs(run=Path("run"), max_episode_steps=0)
