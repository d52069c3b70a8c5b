"""An export that an attacker edits."""

import copy
import io
import json
from typing import Any

import msgspec

from holdfast.proof.export_format import ExportLine, KeyLine, encode_line
from holdfast.proof.keys import KeyFile, SecretKey
from holdfast.proof.leaves import key_leaf
from holdfast.proof.merkle import leaf_hash, root_of
from holdfast.proof.notes import LogHead, origin_of, sign_head
from holdfast.proof.verify import Finding, VerificationReport, VerifyOptions, parse_trusted, verify_file
from tests.support.signers import SERVER
from tests.verify.rich import SERVER_2, Exported

LEAVES = ("event", "key", "gone")


def spelled(line: dict[str, Any]) -> bytes:
    """The value in Holdfast's encoding, if it has one."""
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()
    try:
        return encode_line(msgspec.json.decode(text, type=ExportLine))
    except msgspec.MsgspecError:
        return text + b"\n"


class File:
    """The lines of an export, to be changed. Numbers of lines count from 1."""

    def __init__(self, export: Exported) -> None:
        self.jobs = export.jobs
        self.ledger_id = export.ledger_id
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in export.body.splitlines()]

    def body(self) -> bytes:
        header = json.dumps(self.lines[0], separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        return header + b"".join(map(spelled, self.lines[1:]))

    # Finding lines

    def at(self, kind: str, **fields: Any) -> int:
        """The number of the first line of a kind with these fields."""
        for number, line in enumerate(self.lines, start=1):
            found = line.get(kind)
            if found is not None and all(found.get(name) == value for name, value in fields.items()):
                return number
        raise LookupError(f"no {kind} with {fields}")

    def event_at(self, job: str, rev: int) -> int:
        return self.at("event", job_id=self.jobs[job], rev=rev)

    def event(self, job: str, rev: int) -> dict[str, Any]:
        return self.of(self.event_at(job, rev))

    def row(self, job: str) -> dict[str, Any]:
        return self.of(self.at("job", id=self.jobs[job]))

    def of(self, number: int) -> Any:
        """The contents of a line."""
        [found] = self.lines[number - 1].values()
        return found

    def heads(self) -> list[int]:
        return [number for number, line in enumerate(self.lines, start=1) if "head" in line]

    # Changing lines

    def take(self, number: int) -> dict[str, Any]:
        return self.lines.pop(number - 1)

    def put(self, number: int, line: dict[str, Any]) -> None:
        """Insert a line before this line number."""
        self.lines.insert(number - 1, copy.deepcopy(line))

    def recount(self) -> None:
        """Update the counts in the last line."""
        kinds = {"events": ("event",), "jobs": ("job", "unreadable"), "keys": ("key",), "heads": ("head",), "gone": ("gone",)}
        self.lines[-1] = {"end": {name: sum(any(kind in line for kind in kinds[name]) for line in self.lines) for name in kinds}}

    # Sealing again

    def hashes(self) -> list[bytes]:
        policies = {line["policy"]["id"]: line["policy"]["body"] for line in self.lines if "policy" in line}
        return [_hash(line, policies) for line in self.lines if any(kind in line for kind in LEAVES)]

    def reseal(self, key: KeyFile | None = None) -> None:
        """Sign every head again over the current contents, with `key` or with the server keys of that time."""
        hashes = self.hashes()
        revoked = self.at("key", change="revoked", role="server")
        before = sum(any(kind in line for kind in LEAVES) for line in self.lines[: revoked - 1])
        numbers = self.heads()
        for number in numbers:
            size = len(hashes) if number == numbers[-1] else int(self.of(number).split("\n")[1])
            file = key or (SERVER if size <= before else SERVER_2)
            assert file.secret is not None
            self.lines[number - 1] = {"head": self.head(hashes, size, file.secret)}

    def head(self, hashes: list[bytes], size: int, secret: SecretKey) -> str:
        return sign_head(LogHead(origin_of(self.ledger_id), size, root_of(hashes[:size])), secret)


def _hash(line: dict[str, Any], policies: dict[int, str]) -> bytes:
    found = msgspec.json.decode(spelled(line), type=ExportLine)
    if not isinstance(found.event, msgspec.UnsetType):
        return leaf_hash(found.event.leaf(policies.get(found.event.policy or 0)))
    if isinstance(found.key, KeyLine):
        return leaf_hash(key_leaf(*msgspec.structs.astuple(found.key.change_of())))
    assert not isinstance(found.gone, msgspec.UnsetType)
    return bytes.fromhex(found.gone.hash)


def verified(body: bytes, export: Exported, **wishes: Any) -> VerificationReport:
    wishes = {"trusted": parse_trusted(export.trusted)} | wishes
    return verify_file(io.BytesIO(body), VerifyOptions(**wishes))


def first(verdict: VerificationReport) -> Finding:
    assert not verdict.intact
    return verdict.findings[0]


def names(verdict: VerificationReport, rule: str, line: int) -> bool:
    """Whether the first finding is this rule at this place."""
    found = first(verdict)
    return found.rule == rule and (found.from_line or found.line) <= line <= found.line
