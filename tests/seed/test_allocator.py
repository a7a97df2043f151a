"""The allocator's setting, tested by counts of page faults and not by time."""

import platform
import subprocess
import sys

import pytest

# Prints the page faults of filling a buffer of 64 MiB for the second time. A process of its
# own: the setting cannot be undone.
_SCRIPT = """
import resource
import sys
import numpy as np
from seed.allocator import keep_freed_memory

def fill():
    np.empty(64 * 1024 * 1024, np.uint8).fill(1)

if sys.argv[1] == "keep":
    keep_freed_memory()
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(mode: str) -> int:
    command = [sys.executable, "-c", _SCRIPT, mode]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_large_buffer_is_used_again() -> None:
    """This holds above 32 MiB too, glibc's largest threshold, where the default maps each anew."""
    # Else the test would show nothing. numpy asks for huge pages: 32 make 64 MiB.
    assert _page_faults("default") >= 32
    assert _page_faults("keep") < 10
