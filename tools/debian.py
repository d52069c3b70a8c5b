"""Programs of Debian packages, for tests that need one which no wheel carries.

An installed program is taken. Else `find_or_fetch` downloads its package, with some that it needs, and unpacks them into the
environment of this Python: apt-get can do that for any user, and nothing is installed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

FETCH_SECONDS = 300


def find_or_fetch(package: str, find: Callable[[], Path | None], needed: tuple[str, ...], advice: str) -> Path:
    """Return what `find` finds, and download the package first if that is nothing. Raise RuntimeError with advice if that fails.

    `needed` are the beginnings of the names of packages that it needs and few machines have.
    """
    with _alone():
        found = find()
        if found is None:
            _fetch(package, needed, advice)
            found = find()
    if found is None:
        raise RuntimeError(advice)
    return found


def place(package: str) -> Path:
    """Return the folder that a package is unpacked into."""
    return Path(sys.prefix) / package


def environment(package: str) -> dict[str, str]:
    """Return the environment for the programs of an unpacked package: they find its libraries."""
    libraries = dict.fromkeys(str(path.parent) for path in (place(package) / "usr/lib").glob("*/*.so*"))
    return {**os.environ, **({"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {})}


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time fetches."""
    with Path(sys.prefix, ".debian.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(package: str, needed: tuple[str, ...], advice: str) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise RuntimeError(advice)
    with tempfile.TemporaryDirectory() as folder:
        options = _download([package], folder, [], advice)
        [file] = Path(folder).glob(f"{package}_*.deb")
        needs = _run(["dpkg-deb", "-f", str(file), "Depends"], folder, advice).replace("|", ",").split(",")
        _download([name for need in needs if (name := need.split()[0]).startswith(needed)], folder, options, advice)
        unpacked = Path(folder, "unpacked")
        for found in Path(folder).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(found), str(unpacked)], folder, advice)
        shutil.copytree(unpacked, place(package), symlinks=True, dirs_exist_ok=True)


def _download(names: Sequence[str], folder: str, options: list[str], advice: str) -> list[str]:
    """Return the options that were needed: without package lists on this machine, they are downloaded into the folder."""
    try:
        _run(["apt-get", *options, "download", *names], folder, advice)
    except RuntimeError:
        if options:
            raise
        options = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", "-o", "Debug::NoLocking=1"]
        Path(folder, "lists/partial").mkdir(parents=True)
        Path(folder, "cache/archives/partial").mkdir(parents=True)
        _run(["apt-get", *options, "update"], folder, advice)
        _run(["apt-get", *options, "download", *names], folder, advice)
    return options


def _run(command: Sequence[str], folder: str, advice: str) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{advice}. {command[0]} said: {done.stderr.strip()}")
    return done.stdout
