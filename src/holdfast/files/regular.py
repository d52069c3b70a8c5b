"""Read a file that a user names: up to a limit, and without waiting for a device or a pipe."""

import errno
import os
import stat


def open_regular(path: str | os.PathLike[str], *, pipes: bool = False, forbidden_mode: int = 0) -> int:
    """Return a descriptor of a plain file. Raise OSError for anything else, with a readable `strerror`.

    `pipes` permits a pipe as well, such as a shell makes for `@<(command)`. Reading it waits for the writing process.
    `forbidden_mode` has the permissions that the file must not have. The file is checked after it is opened, so it cannot be
    replaced in between.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if mode & forbidden_mode:
            raise OSError(errno.EPERM, f"other users have access to it (mode {mode & 0o777:04o}): chmod 600 it")
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], bytes_max: int, *, pipes: bool = False, forbidden_mode: int = 0) -> bytes:
    """Return the contents of a plain file. Raise OSError if it has more than `bytes_max` bytes."""
    with os.fdopen(open_regular(path, pipes=pipes, forbidden_mode=forbidden_mode), "rb") as file:
        body = file.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes")
    return body
