"""Training in a process of its own, so that it shares no interpreter lock with acting.

learner process                                 trainer process
`handle`: put      == unrolls, `unroll_ring` =>  `main`: Training
          weights  <= two copies in shared memory =
          report, save, stop  == `calls` =>
                              <= `calls` ==      acting_state, finished, failed, log
"""
