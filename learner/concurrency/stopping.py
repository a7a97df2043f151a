"""How a thread that waits for another thread or process learns that the run ends."""


class Stopped(Exception):
    """The run is stopping; raised out of a call that waits for another thread."""
