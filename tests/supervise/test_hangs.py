"""A program that hangs is ended, whichever kind of heartbeat it sent."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import supervised
from holdfast.supervise.heartbeats import HeartbeatListener, HeartbeatMonitor, ReceivedHeartbeat, parse_heartbeat
from tests.supervise.conftest import QUICK, Ended, Supervise
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

HANG = "exec sleep 1000"
WAYS = {
    "descriptor": ["sh", "-c", f'echo >&"$HOLDFAST_BEAT_FD"; {HANG}'],
    "command": ["sh", "-c", f'"$0" -m holdfast beat && {HANG}', sys.executable],
    "library": [sys.executable, "-c", "import signal; from holdfast import supervised; supervised.beat(); signal.pause()"],
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_program_that_stops_beating_is_ended(supervise: Supervise, url: str, way: str) -> None:
    one = supervise("--name", "web", "--stall-timeout", "5s", "--max-restarts", 0, "--json", "--", *WAYS[way])
    assert one.logged("stalled")["beats"] == 1
    done = one.rest()
    assert (done.code, done.answer["error_code"]) == (1, "stall_timeout")
    with holdfast.open(url) as ledger:
        [state] = ledger.runs()
        assert (state.terminal_reason, state.needs_reset) == ("stall_timeout", True)
        assert state.receipt is not None and state.receipt["health_verdict"] == "stalled"


def test_a_hang_is_a_failure_like_any_other(ended: Ended, url: str) -> None:
    done = ended("--name", "web", *QUICK, "--stall-timeout", "1s", "--max-restarts", 1, "--", "sh", "-c", f"echo ran; {HANG}")
    assert (done.code, done.out) == (1, "ran\n" * 2)
    with holdfast.open(url) as ledger:
        assert ledger.runs()[0].terminal_reason == "restart_limit_exceeded"


def test_a_hung_program_that_exits_cleanly_on_a_signal_counts_as_hung(ended: Ended) -> None:
    """Also a shell that traps TERM and exits with 0."""
    program = "trap 'exit 0' TERM; echo ran; while :; do sleep 1000 & wait; done"
    done = ended(*QUICK, "--stall-timeout", "1s", "--max-restarts", 1, "--json", "--", "sh", "-c", program)
    assert "stalled" in done.err
    assert (done.code, done.out.splitlines().count("ran")) == (1, 2)


def test_a_program_that_never_beats_is_not_ended_for_silence() -> None:
    assert HeartbeatMonitor(5, from_start=False).silent_since is None
    assert HeartbeatMonitor(5, from_start=True).silent_since == 5
    watch = HeartbeatMonitor(5, from_start=False)
    assert not watch.record(9, ReceivedHeartbeat())
    assert watch.silent_since == 9


def test_after_a_freeze_there_is_a_fresh_interval() -> None:
    watch = HeartbeatMonitor(5, from_start=True)
    watch.reset_silence(70)
    assert watch.silent_since == 70
    watch.record(90, ReceivedHeartbeat())
    assert watch.silent_since == 90


def test_the_receipt_has_the_contents_of_the_beat(supervise: Supervise, url: str) -> None:
    said = 'echo \'{"stage":"mix","progress":3}\' >&"$HOLDFAST_BEAT_FD"; echo sent; '
    one = supervise("--name", "web", "--", "sh", "-c", said + HANG)
    assert one.line() == "sent"
    with holdfast.open(url) as ledger:
        found = wait_until(lambda: [run for run in ledger.runs() if run.receipt and run.receipt["detail"]])[0].receipt
    assert found is not None
    assert (found["detail"], found["health_verdict"], found["run_id"]) == ("stage mix, progress 3", "healthy", "web/1")


def test_a_worker_beats_by_itself(supervise: Supervise, folder: Path) -> None:
    (folder / "shop.py").write_text(
        "from holdfast import App\napp = App('sqlite:///shop.db')\n@app.handler()\ndef work() -> None:\n    pass\n"
    )
    worker = [sys.executable, "-m", "holdfast", "worker", "run", "shop:app", "--name", "ada"]
    one = supervise("--name", "shop", "--stall-timeout", "1m", "--", *worker)
    one.logged("worker started")
    with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
        wait_until(lambda: any(run.receipt and "stage working" in (run.receipt["detail"] or "") for run in ledger.runs()))


# The parts


@pytest.mark.parametrize(
    ("line", "fields", "refused"),
    [
        (b"", {}, False),
        (b"still here", {}, False),
        (b'{"stage":"mix"}', {"stage": "mix"}, False),
        (b'{"progress":0}', {"progress": 0}, False),
        (b'{"progress":-1}', {"progress": 0}, False),
        (b'{"progress":33.3}', {"progress": 33}, False),
        (b'{"progress":0.5}', {"progress": 50}, False),
        (b'{"progress":1e999}', {}, True),
        (b'{"progress":"half"}', {}, True),
        (b'{"stage":"mix","progress":3,"more":[1]}', {"stage": "mix", "progress": 3}, True),
        (b'{"stage":" ","progress":true}', {}, True),
        (b'{"stage":"' + b"x" * 201 + b'","progress":9007199254740992}', {"progress": 9007199254740991}, True),
        (b'{"stage":', {}, True),
        (b'{"stage":"\xff"}', {}, True),
        (b"[1]", {}, False),
        (b'{"a":' + b"[" * 4_000, {}, True),
        (b'{"stage":"' + b"x" * 5_000 + b'"}', {}, True),
        (b'{"stage":null}', {}, False),
        (b'{"checkpoint":null}', {"checkpoint": msgspec.Raw(b"null")}, False),
        (b'{"checkpoint":{"a":1,"a":2},"stage":"mix"}', {"stage": "mix"}, True),
        (b'{"checkpoint":"' + b"x" * 262_143 + b'"}', {}, True),
        (b'{"checkpoint":"' + b"x" * 300_000 + b'"}', {}, True),
    ],
)
def test_every_line_counts_as_a_heartbeat(line: bytes, fields: dict[str, object], refused: bool) -> None:
    heard = parse_heartbeat(line)
    assert (heard.fields, heard.refused is not None) == (fields, refused)


def test_pipe_and_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Heartbeats arrive by both. The test's name is short because it is a part of the socket's path, which has a limit."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    heard: list[ReceivedHeartbeat] = []
    with HeartbeatListener("ledger/web", heard.append) as listener:
        for name, value in listener.environment().items():
            monkeypatch.setenv(name, value)
        assert supervised.is_supervised()
        assert supervised.beat(stage="a", progress=1)
        listener._read_datagram()
        monkeypatch.delenv("HOLDFAST_BEAT_SOCKET")
        monkeypatch.setenv("HOLDFAST_BEAT_FD", str(listener.write_fd))
        assert supervised.beat()
        os.write(listener.write_fd, b"x" * 10_000 + b'\n{"progress":2}\nhalf')
        listener._pipe.read()
        assert heard == [ReceivedHeartbeat("a", 1), ReceivedHeartbeat(), ReceivedHeartbeat(), ReceivedHeartbeat(None, 2)]
        listener.discard()
        os.write(listener.write_fd, b'{"progress":5}\n')
        listener._pipe.read()
        assert heard[4:] == [ReceivedHeartbeat(None, 5)]
    assert list(tmp_path.rglob("*")) == [tmp_path / f"holdfast-{os.getuid()}"]


def test_a_socket_path_that_is_too_long_is_replaced_by_one_short_path_for_each_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sockets: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    monkeypatch.setattr("holdfast.supervise.heartbeats._FALLBACK_FOLDER", sockets)
    found = []
    for _ in range(2):
        with HeartbeatListener("ledger/web", lambda _: None) as one:
            found.append(one.path)
    assert found[0] == found[1]
    assert list(Path(sockets).rglob("*")) == [found[0].parent]


def test_no_socket_file_stays_without_a_private_folder(monkeypatch: pytest.MonkeyPatch, sockets: str) -> None:
    taken = Path(sockets) / f"holdfast-{os.getuid()}"
    taken.write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
    monkeypatch.setattr("holdfast.supervise.heartbeats._FALLBACK_FOLDER", sockets)
    with HeartbeatListener("ledger/web", lambda _: None) as one:
        assert one.path.is_socket()
    assert list(Path(sockets).rglob("*")) == [taken]


def test_a_program_without_a_supervisor_cannot_send_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_BEAT_SOCKET", "HOLDFAST_BEAT_FD", "HOLDFAST_BEAT_EVERY"):
        monkeypatch.delenv(name, raising=False)
    assert (supervised.is_supervised(), supervised.beat(), supervised.every_s()) == (False, False, 20.0)
    monkeypatch.setenv("HOLDFAST_BEAT_SOCKET", "/nowhere/at/all")
    monkeypatch.setenv("HOLDFAST_BEAT_FD", "one")
    monkeypatch.setenv("HOLDFAST_BEAT_EVERY", "0.5")
    assert (supervised.is_supervised(), supervised.beat(), supervised.every_s()) == (True, False, 0.5)


def test_a_socket_left_by_a_killed_supervisor_is_replaced(monkeypatch: pytest.MonkeyPatch, sockets: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
    first = HeartbeatListener("ledger/web", lambda _: None)
    with HeartbeatListener("ledger/web", lambda _: None) as second:
        assert second.path == first.path


def test_a_folder_that_others_may_write_to_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"holdfast-{os.getuid()}").mkdir(mode=0o755)
    with HeartbeatListener("ledger/web", lambda _: None) as listener:
        assert not listener.path.is_relative_to(tmp_path)


def test_beat_without_a_supervisor_is_reported(ended: Ended, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "holdfast", "beat"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "this program is not supervised" in done.stderr) == (1, True)


def test_a_beat_needs_neither_ledger_nor_supervisor() -> None:
    """Scripts beat often, so this must be fast."""
    program = (
        "import sys\nfrom holdfast.cli import main\n"
        "try:\n    main(['beat'])\nexcept SystemExit as end:\n    assert end.code == 1\n"
        "no = ('apsw', 'holdfast.ledger', 'holdfast.core.model', 'holdfast.supervise')\n"
        "print([name for name in sys.modules if name in no])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
