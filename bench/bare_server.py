"""A bare endpoint: uvicorn on httptools and uvloop, and an application that reads a JSON body and answers a small one.

`python -m bench.bare_server` prints its port. It is what an answer of this stack costs without a ledger.
"""

import asyncio
import socket
from typing import Any

import msgspec
import uvicorn
import uvloop


async def application(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    answer = msgspec.json.encode({"fields": len(msgspec.json.decode(body))})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(application, http="httptools", log_config=None, access_log=False, lifespan="off", ws="none")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
