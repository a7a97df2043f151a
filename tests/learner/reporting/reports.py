"""A report as a run makes it, for the tests of what shows it."""

REPORT = {
    "env_steps_per_s": 960.0,
    "episode/return_mean_100": -12.5,
    "episodes": 214,
    "learner_steps": 3875.0,
    "policy/lag_mean": 1.25,
    "policy/lag_max": 3.0,
    "inference/fill_ratio": 0.93,
    "inference/latency_ms_p50": 12.4,
    "inference/latency_ms_p99": 38.2,
    "actors/connected": 2.0,
    "envs/connected": 64.0,
    "queue/unrolls": 16.0,
    "time/trainer_backward_share": 0.45,
    "time/trainer_forward_share": 0.2,
    "time/trainer_wait_share": 0.35,
}
