"""The use of a token is recorded once an hour. In between, recording it needs no lock."""

import apsw

import holdfast


def test_recording_the_use_of_a_token_again_does_not_wait_for_a_writer(sqlite_url: str) -> None:
    with holdfast.open(sqlite_url) as ledger:
        made = ledger.new_token("client", "kim")
        ledger.touch_token(made.token.id)
        writer = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
        try:
            writer.execute("BEGIN IMMEDIATE")
            ledger.touch_token(made.token.id)
            ledger.touch_token("unknown")
        finally:
            writer.close()
