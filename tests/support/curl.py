"""A small stand-in for curl, for machines without one. It knows the options that the guides use, and refuses others.

`-s`, `-S`, `--fail-with-body`, `-X METHOD`, `-H NAME: VALUE`, `-d DATA`, `-o FILE`, `-w FORMAT` with the status, and one address.
"""

import http.client
import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

FAILED = 22
"""The exit code of curl if the status is 400 or more."""


def path_with_curl(folder: Path) -> str:
    """Return a PATH that has curl: the installed one, or this program under its name in the folder."""
    path = os.environ.get("PATH", os.defpath)
    if shutil.which("curl", path=path) is not None:
        return path
    script = folder / "curl"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} "$@"\n')
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{path}"


def main(words: list[str]) -> int:
    headers: dict[str, str] = {}
    url = data = method = None
    file, shown = "/dev/stdout", ""
    fails = False
    left = iter(words)
    for word in left:
        match word:
            case "-sS" | "-s" | "-S":
                pass
            case "--fail-with-body":
                fails = True
            case "-H":
                name, _, value = next(left).partition(":")
                headers[name.strip()] = value.strip()
            case "-X":
                method = next(left)
            case "-d":
                data = next(left)
            case "-o":
                file = next(left)
            case "-w":
                shown = next(left)
            case _ if word.startswith("-") or url is not None:
                sys.exit(f"curl: {word} is not known here")
            case _:
                url = word
    assert url is not None, "curl: no address"
    parts = urlsplit(url)
    assert parts.scheme == "http" and parts.hostname is not None, url
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request(method or ("GET" if data is None else "POST"), target, data, headers)
    answer = connection.getresponse()
    body = answer.read()
    if file == "/dev/stdout":
        sys.stdout.buffer.write(body)
    else:
        Path(file).write_bytes(body)
    sys.stdout.write(shown.replace("%{http_code}", str(answer.status)).replace("\\n", "\n"))
    return FAILED if fails and answer.status >= http.HTTPStatus.BAD_REQUEST else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
