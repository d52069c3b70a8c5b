"""Asks the server in tests/support/forked.py for a program, gives it its streams, and ends with its exit code.

Imports little: it starts in a fraction of the time that the program itself takes to start.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    address, *words = sys.argv[1:]
    request = json.dumps({"words": words, "folder": os.getcwd(), "env": dict(os.environ)}).encode()  # noqa: PTH109
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        socket.send_fds(line, [len(request).to_bytes(4, "big")], [0, 1, 2])
        line.sendall(request)
        code = int.from_bytes(line.recv(4), "big", signed=True)
    sys.exit(code if code >= 0 else 128 - code)
