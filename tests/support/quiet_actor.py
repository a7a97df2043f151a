"""An actor process that says hello to the address that it gets, and then sends no more.

    python -m tests.support.quiet_actor unix:/tmp/learner.sock

It tells on stdout that it was welcomed, and ends when its stdin does. Imports nothing
heavy, so that a test can start it in a moment.
"""

import queue
import sys

import grpc

from seed import wire
from seed.pb import inference_pb2 as pb
from seed.pb import inference_pb2_grpc as pb_grpc
from seed.specs import ArraySpec, EnvSpec

SPEC = EnvSpec(
    observations=(ArraySpec(name="observation", dtype="float32", shape=(3,)),),
    action=ArraySpec(name="action", dtype="int64", num_values=4),
)
NUM_ENVS = 5


def main(address: str) -> None:
    """Connects and waits for the end of stdin."""
    outgoing: queue.SimpleQueue[pb.ActRequest] = queue.SimpleQueue()
    outgoing.put(
        wire.encode_hello(
            wire.Hello(run_id="quiet", role=pb.ROLE_TRAIN, group_sizes=(NUM_ENVS,), spec=SPEC)
        )
    )
    with grpc.insecure_channel(address) as channel:
        call = pb_grpc.InferenceStub(channel).Act(iter(outgoing.get, None))
        print("welcomed to", next(call).welcome.run_name, flush=True)
        sys.stdin.read()
        call.cancel()


if __name__ == "__main__":
    main(sys.argv[1])
