"""Serves actors in processes of their own, so that gRPC and acting share no interpreter lock.

ingress process (one or more)                     learner process
`main`: ServerThread                              `handle`: starts, replaces and ends them
`backend`: submit == memory, step notices ======> `link`: Request -> batcher
           reply <== memory, answer notices ===== `link`: reply <- inference thread
           make_task, admit, seat, log, ... ====> `handle`: answers calls (concurrency.pipe_rpc)

Memory and notices are defined in seed/step_memory.py and seed/step_notices.py. A group has one
unanswered step at most, so memory for one step of each is enough.
"""
