"""Serves actors: their streams, slots and limits. Only `reception` imports torch.

`server` runs on one event loop, in a thread of the learner or of an ingress process:

    stream -> session -> batcher (Request)           by gRPC: transport, authentication
              session <- reply, on any thread        by memory: local_steps

`backend` is the protocol through which `server` admits actors; `reception` implements it in
the learner's process.
"""
