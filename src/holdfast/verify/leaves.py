"""The part of a file that the tree is made of: policies, events, changes of keys, and what is gone, in the total order."""

from hashlib import sha256
from typing import Literal, get_args

import msgspec

from holdfast.core.model import Actor, EventType, Policy
from holdfast.core.proof.exported import EventLine, GoneLine, Header, KeyLine, LeafPlace, PolicyLine, SealedLine, event_of
from holdfast.core.proof.leaves import key_leaf
from holdfast.core.proof.merkle import Hash
from holdfast.verify.findings import Findings
from holdfast.verify.jobs import Jobs
from holdfast.verify.keys import KeyCheck
from holdfast.verify.missing import Missing
from holdfast.verify.tree import Changed, Leaves, Placed, Places
from holdfast.verify.wording import decoded, in_words, plain, shown

ACTORS_MAX = 10_000
POLICY_CHARACTERS_MAX = 16_384
"""Far more than any policy that a ledger writes."""
Level = Literal["none", "liveness", "all"]
"""What a policy wants to be signed, from the least to the most."""
_LEVELS = get_args(Level)
Place = LeafPlace | msgspec.UnsetType
_About = tuple[int | None, int | None]
"""A job and a revision."""
_policy: msgspec.json.Decoder[Policy] = msgspec.json.Decoder(Policy)


class LeafCheck:
    """Checks each line by itself and each job's events one after another, and gathers the leaves."""

    def __init__(self, header: Header, keys: KeyCheck, findings: Findings, require_signed: Level = "none") -> None:
        self._findings = findings
        self._required = require_signed
        self._keys = keys
        self.is_proof = not isinstance(header.holdfast_proof, msgspec.UnsetType)
        self._policies: dict[int, tuple[str, Policy | None]] = {}
        self._actors: dict[str, Actor] = {}
        self.jobs = Jobs(header.ledger, keys.book)
        self.tree, self.places, self.missing = Leaves(), Places(), Missing()
        self.events = self.changes = self.gone = self.signatures = 0
        self.attempts = self.unsigned_attempts = 0
        self.unplaced = 0
        """Lines of a proof that are not in its tree."""
        self.first_unplaced = 0
        self.pos = 0
        """The newest position."""
        self._newest: Changed | None = None
        """The event in the line before, if there was one in it."""

    def event(self, number: int, line: EventLine, place: Place) -> None:
        self.events += 1
        self.signatures += line.signature is not None
        text, policy = self.policy_of(number, line.policy, line.job_id, line.rev)
        leaf = line.leaf(text)
        self._take(number, line.pos, sha256(b"\0" + leaf).digest(), place, (line.job_id, line.rev))
        self._newest = found = Changed(number, line.pos, line.job_id, line.rev, line.type)
        self.missing.event(len(self.tree) - 1, found, leaf)
        if line.type is EventType.CLAIMED:
            self._attempt(number, line, policy)
        actor = self._actor(line.actor)
        if actor is None:
            detail = f"its actor is {shown(line.actor)}, which is no worker, operator or other actor of Holdfast's"
            self._findings.add(number, "role", detail, job_id=line.job_id, rev=line.rev, pos=line.pos, event=str(line.type))
            return
        if line.correlation_id is None:
            correlation_id, trace_id = self.jobs.correlation(line.job_id)
            if line.trace_id is not None:  # no leaf vouches for it here: it has to be the job's
                trace_id = line.trace_id
        else:
            correlation_id, trace_id = line.correlation_id, line.trace_id
        for wrong in self.jobs.feed(event_of(line, actor, policy, correlation_id, trace_id)):
            self._findings.add(
                number, wrong.rule, plain(wrong.detail), job_id=wrong.job_id, rev=wrong.rev, pos=line.pos, event=str(line.type)
            )

    def _attempt(self, number: int, line: EventLine, policy: Policy | None) -> None:
        """An attempt begins: what has to be signed of it is what its policy wants. A word that nobody knows wants nothing."""
        self.attempts += 1
        level = policy.signed if policy is not None and policy.signed in _LEVELS else "none"
        self.unsigned_attempts += level == "none"
        if _LEVELS.index(level) < _LEVELS.index(self._required):
            detail = f"attempt {line.attempt} was claimed under signed={level}, but {self._required} is required"
            self._findings.add(number, "signed", detail, job_id=line.job_id, rev=line.rev, pos=line.pos, event=str(line.type))

    def key(self, number: int, line: KeyLine, place: Place) -> None:
        self.changes += 1
        change = line.change_of()
        self._take(number, line.pos, sha256(b"\0" + key_leaf(*msgspec.structs.astuple(change))).digest(), place)
        self._keys.feed(number, change)

    def lost(self, number: int, line: GoneLine) -> None:
        self.gone += 1
        leaf = bytes.fromhex(line.hash)
        self._take(number, line.pos, leaf, msgspec.UNSET)
        self.missing.gone(number, line.pos, leaf)

    def sealed(self, number: int, line: SealedLine) -> None:
        """The event before this line was sealed with another hash, as the file says."""
        self.tree.skip()
        found = self._newest
        if self.is_proof or found is None or (found.pos, found.line) != (line.pos, number - 1):
            self._findings.add(number, "order", "a hash that was sealed, without the event that it belongs to", pos=line.pos)
            return
        self.tree.sealed(bytes.fromhex(line.hash), found)

    def policy(self, number: int, line: PolicyLine) -> None:
        self.tree.skip()
        if line.id in self._policies:
            self._findings.add(number, "policy", f"policy {line.id} is told twice")
            return
        if len(line.body) > POLICY_CHARACTERS_MAX:
            # Every event that refers to it is hashed with its text.
            self._findings.add(number, "policy", f"policy {line.id} has more than {POLICY_CHARACTERS_MAX} characters")
            self._policies[line.id] = ("", None)
            return
        try:
            self._policies[line.id] = (line.body, _policy.decode(line.body))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._findings.add(number, "policy", f"policy {line.id} cannot be read: {in_words(str(error), decoded(line.body))}")
            self._policies[line.id] = (line.body, None)

    def policy_of(self, number: int, policy_id: int | None, job_id: int, rev: int) -> tuple[str | None, Policy | None]:
        """The text of a policy that a line refers to, and what it says."""
        if policy_id is None:
            return None, None
        found = self._policies.get(policy_id)
        if found is None:
            self._findings.add(number, "policy", f"policy {policy_id} was never told", job_id=job_id, rev=rev)
            return None, None
        return found

    def newer_than(self, sealed: int) -> tuple[int, int]:
        """How many leaves are not under a head of that size, and the line of the first of them."""
        if self.is_proof:
            return self.unplaced, self.first_unplaced
        return max(0, len(self.tree) - sealed), self.tree.line_of(sealed)

    def _take(self, number: int, pos: int, leaf: Hash, place: Place, about: _About = (None, None)) -> None:
        if pos <= self.pos:
            self._findings.add(number, "order", f"position {pos} follows {self.pos}", pos=pos)
        self.pos = max(self.pos, pos)
        if not self.is_proof:
            self.tree.add(leaf, pos)
        elif isinstance(place, msgspec.UnsetType):
            self.unplaced += 1
            self.first_unplaced = self.first_unplaced or number
        else:
            self.places.add(Placed(number, pos, leaf, place, *about))

    def _actor(self, text: str) -> Actor | None:
        found = self._actors.get(text)
        if found is None:
            try:
                found = Actor.parse(text)
            except ValueError:
                return None
            if str(found) != text:
                return None
            if len(self._actors) >= ACTORS_MAX:
                self._actors.clear()
            self._actors[text] = found
        return found
