"""Relay to a webhook until it is stopped, or kill the process right after a number of messages have arrived."""

import os
import signal
import sys
import threading
from datetime import datetime

import holdfast
from holdfast.services import Message, Relay, WebhookSink
from tests.support.receiver import SECRET

DUTY_TTL = "1s"
"""A short duty, so that the process after a killed one does not wait long."""


class KillingSink(WebhookSink):
    """Kill the process after a message has arrived and before its position is saved."""

    lives = 0

    def deliver(self, message: Message, at: datetime) -> None:
        super().deliver(message, at)
        self.lives -= 1
        if self.lives == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, receiver: str, lives: int) -> None:
    with holdfast.open(url) as ledger:
        sink = KillingSink(receiver, secret=SECRET, allow_private=True, start="beginning", timeout=20)
        sink.lives = lives
        relay = Relay(ledger, [sink], duty_ttl=DUTY_TTL)
        stop = threading.Event()
        thread = threading.Thread(target=relay.run, args=(stop,))
        thread.start()
        sys.stdin.readline()
        stop.set()
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
