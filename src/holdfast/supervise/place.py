"""Where a supervisor is, so that its successor on the same machine need not wait for what a dead one held."""

import os
import re
import sys
from pathlib import Path

_HOLDER = re.compile(r"([^/]+)/(\d+)/(\d+)/[^/]+")
_LINUX = sys.platform.startswith("linux")


def holder(nonce: str) -> str:
    """A name for this process that no other ever has: which system, which process, since when."""
    return f"{_system()}/{os.getpid()}/{_began(os.getpid())}/{nonce}"


def is_dead(of: str) -> bool:
    """Whether a holder is a process of this very system, and gone. False where nobody here can know."""
    found = _HOLDER.fullmatch(of)
    return found is not None and found[1] == _system() and _began(int(found[2])) != found[3]


def _system() -> str:
    """This boot, and which processes are seen from here: numbers of processes mean something only within both."""
    if not _LINUX:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks since boot; nothing where there is no such process, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
