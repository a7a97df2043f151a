"""Serves actors: their streams, seats and limits. No torch, but for `reception`.

`server` runs on one event loop, in a thread of the learner or of an ingress process:

    stream -> session -> batcher (Request)           by gRPC: transport, authentication
              session <- reply, on any thread        by memory: local_steps

Whom it lets in, `backend` (a protocol) says; `reception` is what that is in the learner.
"""
