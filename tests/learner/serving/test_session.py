"""A session from its hello to its end: replies, slots, and how it is counted."""

import dataclasses

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seed import wire
from seed.errors import LearnerUnavailableError, RunCompleteError
from seed.grpc_status import error_from_status
from seed.pb import inference_pb2 as pb
from tests.learner.builders import TIMEOUT_S, env_outputs, in_thread
from tests.learner.serving.support import HELD, SPEC, Serving, first, hello, step


def test_actor_is_welcomed(serving: Serving) -> None:
    """The welcome holds the run's name, how many environments are connected, with its own, and
    how long the learner bears silence."""
    welcome = pb.Welcome(run_name="a-run", envs_connected=5, silence_limit_s=300.0)
    assert serving.actor().say_hello(2, 3) == welcome
    assert serving.actor().say_hello(4).envs_connected == 9


def test_every_step_is_answered_with_its_actions(serving: Serving) -> None:
    """The actions are encoded as the spec says, under the group's number."""
    actor = serving.actor()
    actor.start(2, 3)
    actions = actor.act(step(3, group=1, value=2))
    assert actions.group == 1
    assert np.frombuffer(actions.actions, "<i8").tolist() == [2, 2, 2]


def test_request_carries_the_step_as_sent(serving: Serving) -> None:
    """Observations, rewards, flags and games reach the slots of the group."""
    actor = serving.actor()
    actor.start(2, 3)
    outputs = env_outputs(3, group=1, value=0.0)
    outputs.observations[0][:] = np.arange(9).reshape(3, 3)
    outputs.terminated[1], outputs.truncated[2] = True, True
    games = [wire.Episode(env=1, episode_return=4.5, length=7)]
    outputs = dataclasses.replace(outputs, episodes=games)
    actor.act(pb.ActRequest.FromString(wire.encode_env_outputs(outputs, SPEC)))
    request = serving.inference.requests[-1]
    assert request.slots.tolist() == [2, 3, 4]
    assert np.array_equal(request.outputs.observations[0], outputs.observations[0])
    assert request.outputs.terminated.tolist() == [False, True, False]
    assert request.outputs.truncated.tolist() == [False, False, True]
    assert not request.outputs.is_first.any()
    assert request.outputs.episodes == games


def test_only_the_first_message_of_a_group_starts_its_session(serving: Serving) -> None:
    """It makes the stores drop the rows of the actor before; later episode starts must not."""
    actor = serving.actor()
    actor.say_hello(1, 1)
    for message in (first(1), first(1, group=1), step(1), first(1), step(1, group=1)):
        actor.act(message)
    starts = [request.is_session_start for request in serving.inference.requests]
    assert starts == [True, True, False, False, False]


@pytest.mark.parametrize(("role", "is_eval"), [(pb.ROLE_TRAIN, False), (pb.ROLE_EVAL, True)])
def test_role_decides_who_acts_greedily(serving: Serving, role: pb.Role, is_eval: bool) -> None:
    """The hello of the actor holds its role."""
    actor = serving.actor()
    actor.say_hello(1, role=role)
    actor.act(first(1))
    assert serving.inference.requests[-1].is_eval is is_eval


def test_replies_come_in_the_order_of_the_answers(serving: Serving) -> None:
    """No group waits for another, and each reply holds its group's number."""
    actor = serving.actor()
    actor.start(1, 2)
    actor.send(step(1, group=0, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    assert actor.act(step(2, group=1, value=3)).group == 1
    held.reply(np.array([2]))
    late = actor.receive().actions
    assert (late.group, late.actions) == (0, np.array([2], "<i8").tobytes())


def test_actor_that_ends_its_stream_gets_status_ok(serving: Serving) -> None:
    """It is then no longer counted."""
    actor = serving.actor()
    actor.start(2)
    actor.finish_sending()
    assert actor.status()[0] is grpc.StatusCode.OK
    serving.batcher.wait_for_connected(0)
    assert serving.metrics.drain()["envs/connected"] == 0


def test_slots_are_released_after_the_last_reply_only(serving: Serving) -> None:
    """Until then the inference thread may still write them; then they are used again."""
    leaving = serving.actor()
    leaving.start(2)
    leaving.send(step(2, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    leaving.close()
    serving.batcher.wait_for_connected(0)

    def slots_of_a_new_actor(size: int) -> list[int]:
        actor = serving.actor()
        actor.start(size)
        return serving.inference.requests[-1].slots.tolist()

    assert held.slots.tolist() == [0, 1]
    assert slots_of_a_new_actor(2) == [2, 3]
    held.reply(np.array([0, 0]))
    assert slots_of_a_new_actor(3) == [0, 1, 4]


def test_slots_of_an_idle_actor_are_reused_when_it_leaves(serving: Serving) -> None:
    """The next actor starts a session of its own on them."""
    leaving = serving.actor()
    leaving.start(2)
    leaving.close()
    serving.batcher.wait_for_connected(0)
    serving.actor().start(2)
    request = serving.inference.requests[-1]
    assert request.slots.tolist() == [0, 1]
    assert request.is_session_start


def test_connected_environments_are_counted(serving: Serving) -> None:
    """The batcher waits for a share of them, and reports show them."""
    actors = [serving.actor() for _ in range(2)]
    actors[0].say_hello(2, 2)
    serving.batcher.wait_for_connected(4)
    actors[1].say_hello(3)
    serving.batcher.wait_for_connected(7)
    actors[0].close()
    serving.batcher.wait_for_connected(3)
    report = serving.metrics.drain()
    assert (report["actors/connected"], report["envs/connected"]) == (1, 3)


def test_shutdown_ends_streams_with_a_status_to_retry_on(serving: Serving) -> None:
    """This holds for an actor that waits for actions and for one that steps."""
    waiting, stepping = serving.actor(), serving.actor()
    waiting.start(1)
    stepping.start(1)
    waiting.send(step(1, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    serving.stop_server()
    for actor in (waiting, stepping):
        assert isinstance(error_from_status(*actor.status()), LearnerUnavailableError)
    # The inference thread was in the middle of a batch, whose answer goes nowhere.
    held.reply(np.array([0]))


def test_actors_are_told_that_the_run_is_complete(serving: Serving) -> None:
    """Those that wait for actions, those that step, and those that come back later."""
    waiting, stepping, later = serving.actor(), serving.actor(), serving.actor()
    waiting.start(1)
    stepping.start(1)
    waiting.send(step(1, value=HELD))
    held = serving.inference.held.get(timeout=TIMEOUT_S)
    serving.complete()
    held.reply(np.array([0]))
    for actor in (waiting, stepping):
        assert isinstance(error_from_status(*actor.status()), RunCompleteError)
    later.send(hello(1))
    assert isinstance(error_from_status(*later.status()), RunCompleteError)
    with pytest.raises(grpc.RpcError) as refused:
        later.stub.GetTask(pb.GetTaskRequest(protocol_version=wire.PROTOCOL_VERSION))
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert serving.metrics.drain().get("actors/refused", 0) == 0


def test_connecting_to_a_stopped_server_is_to_be_retried(serving: Serving) -> None:
    """The learner may be restarting."""
    serving.stop_server()
    actor = serving.actor()
    actor.send(hello(1))
    assert isinstance(error_from_status(*actor.status()), LearnerUnavailableError)


def test_many_actors_at_once_get_their_own_answers(serving: Serving) -> None:
    """Ten streams with two groups each make fifty steps."""

    def play(number: int) -> None:
        actor = serving.actor()
        actor.start(1, 2)
        for _ in range(25):
            for group, size in enumerate((1, 2)):
                actor.send(step(size, group=group, value=number))
            answers = {a.group: a.actions for a in (actor.receive().actions for _ in range(2))}
            for group, size in enumerate((1, 2)):
                assert np.frombuffer(answers[group], "<i8").tolist() == [number] * size

    for playing in [in_thread(play, number) for number in range(10)]:
        playing.result(TIMEOUT_S)


def test_watcher_of_the_health_is_told_that_the_learner_stops(serving: Serving) -> None:
    """The news comes before the streams end, so that a load balancer sends no more actors there."""
    with grpc.insecure_channel(serving.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(  # pyright: ignore[reportAttributeAccessIssue]
            health_pb2.HealthCheckRequest(service="seed.v1.Inference"), timeout=TIMEOUT_S
        )
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        stopper = in_thread(serving.stop_server)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        stopper.result(TIMEOUT_S)


def test_health_check_says_serving(serving: Serving) -> None:
    """The standard client of container platforms gets it."""
    with grpc.insecure_channel(serving.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(  # pyright: ignore[reportAttributeAccessIssue]
            health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
