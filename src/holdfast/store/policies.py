"""Policies: settings of kinds, tiers and jobs, resolved and stored by content. Also the cache of immutable rows."""

import contextlib
import time
from abc import abstractmethod
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from holdfast.core.commands import Enqueue
from holdfast.core.model import Actor, JobRecord, Micros, Policy
from holdfast.core.policy import NO_SETTINGS, Settings, merge_settings, resolve
from holdfast.store.fleet import Declaration, DeclaredFlow
from holdfast.store.statement_session import StatementSession

Scope = Literal["kind", "tier"]
"""What operators set policies for."""
Layer = Literal["kind", "tier", "handler"]
"""The source of settings: an operator's for a kind or a tier, or the declaration of a kind's handler."""


class CacheSource(Protocol):
    """A transaction that may have read or created rows worth caching."""

    new_profiles: dict[tuple[str, str, str], int]
    policies: dict[int, Policy]
    new_subqueues: dict[Any, int]
    changed_groups: set[int]

    def stamp(self) -> Micros | None: ...


class RowCache:
    """Rows that never change once they are committed."""

    ACTORS_MAX = 10_000
    SUBQUEUES_MAX = 100_000
    SUBQUEUES_SECONDS = 3_600.0
    """How long the number of a subqueue is known. One that has no jobs is deleted after a day without a process asking for it."""

    def __init__(self) -> None:
        self.subqueues: dict[Any, int] = {}
        self._subqueues_since: tuple[float, ...] | None = ()
        """When the numbers of subqueues were begun to be collected, by each clock. None: they are another cache's."""
        self.turns: dict[tuple[str, int], Any] = {}
        """The last turns of claims in queues with subqueues, by queue and rank."""
        self.flow_queues: set[str] = set()
        """Queues that are known to have subqueues."""
        self.policies: dict[int, Policy] = {}
        self.profiles: dict[tuple[str, str, str], int] = {}
        self.actors: dict[str, Actor] = {}
        self.changed_groups: set[int] = set()
        """Groups whose counts may have to be brought up to date, by commits since `take_changed_groups`."""

    def update(self, session: CacheSource) -> None:
        """Add the rows that a session read or wrote. Call it only after the session was committed."""
        if session.new_profiles:
            self.profiles.update(session.new_profiles)
        if session.policies:
            self.policies.update(session.policies)
        if session.new_subqueues:
            self.known_subqueues(session.stamp()).update(session.new_subqueues)
            self.flow_queues.update(name.queue for name in session.new_subqueues)
        if session.changed_groups:
            self.changed_groups.update(session.changed_groups)

    def take_changed_groups(self) -> list[int]:
        """Return the changed groups, and forget them. Each is returned to one thread."""
        taken: list[int] = []
        with contextlib.suppress(KeyError):
            while self.changed_groups:
                taken.append(self.changed_groups.pop())
        return taken

    def known_subqueues(self, stamp: Micros | None) -> dict[Any, int]:
        """Return the numbers of subqueues. All are forgotten from time to time, so that a number that is used was asked for
        lately: a subqueue that was not is deleted.

        `stamp` is the ledger's time. Without it, this machine's clocks count: one stands still while the machine is suspended,
        and the other may be set. A step in either direction makes all numbers forgotten.
        """
        times = (time.monotonic(), time.time()) if stamp is None else (stamp / 1e6,)
        since = self._subqueues_since
        if since is None:
            return self.subqueues
        is_recent = len(since) == len(times) and all(
            begun <= now <= begun + self.SUBQUEUES_SECONDS for begun, now in zip(since, times, strict=True)
        )
        if not is_recent or len(self.subqueues) > self.SUBQUEUES_MAX:
            self.subqueues, self._subqueues_since = {}, times
        return self.subqueues

    def share_subqueues(self, other: "RowCache", stamp: Micros | None) -> None:
        """Use the numbers that another cache has now."""
        self.subqueues, self._subqueues_since = other.known_subqueues(stamp), None

    def actor(self, text: str) -> Actor:
        found = self.actors.get(text)
        if found is None:
            if len(self.actors) >= self.ACTORS_MAX:
                self.actors.clear()
            found = self.actors[text] = Actor.parse(text)
        return found


_settings_decoder = msgspec.json.Decoder(Settings)
_policy_decoder = msgspec.json.Decoder(Policy)
_flow_decoder = msgspec.json.Decoder(DeclaredFlow)
_encode = msgspec.json.Encoder().encode


def _check_after_ms(policy: Policy) -> int:
    """Return how long after a claim the sweeper may have something to do for its jobs."""
    return min(policy.lease_ttl_ms, policy.stall_after_ms, policy.progress_timeout_ms or policy.lease_ttl_ms)


class _Profile(NamedTuple):
    """The policy of jobs with a certain kind, tier and override."""

    id: int
    policy_id: int


class SqlPolicies(StatementSession):
    """The part of a transaction that resolves policies. `new_profiles` and `policies` hold rows that are not in the cache yet."""

    cache: RowCache
    new_profiles: dict[tuple[str, str, str], int]
    policies: dict[int, Policy]
    _policy_ids: dict[Policy, int]

    def _policy(self, policy_id: int) -> Policy:
        found = self.cache.policies.get(policy_id) or self.policies.get(policy_id)
        if found is None:
            self.policies = {id_: _policy_decoder.decode(body) for id_, body in self.rows("policies")}
            found = self.policies[policy_id]
        return found

    def _policy_id(self, policy: Policy) -> int:
        """Return the id of a policy. It is cached because the jobs of one transaction usually share their policy."""
        known = self._policy_ids.get(policy)
        if known is not None:
            return known
        body = _encode(policy).decode()
        found: int | None = self.value("find_policy", body=body)
        if found is None:
            found = self.value(
                "insert_policy",
                body=body,
                lease_us=policy.lease_ttl_ms * 1_000,
                check_after_us=_check_after_ms(policy) * 1_000,
                token_tail=policy.token_tail,
            )
        assert found is not None
        self._policy_ids[policy] = found
        return found

    def profile_id(self, item: Enqueue | JobRecord) -> int:
        """Return the id of the profile row with this item's kind, tier and override."""
        key = (item.kind, item.tier or "", "" if item.override is None else item.override.decode())
        known = self.cache.profiles.get(key) or self.new_profiles.get(key)
        return known if known is not None else self.intern_profile(key)

    def intern_profile(self, key: tuple[str, str, str]) -> int:
        kind, tier, override = key
        self._lock_settings()
        found = self.record(_Profile, "find_profile", kind=kind, tier=tier, override=override)
        if found is None:
            policy_id = self._policy_id(self._resolve(kind, tier, override))
            id_: int = self.value("insert_profile", kind=kind, tier=tier, override=override, policy_id=policy_id)
            found = _Profile(id_, policy_id)
        self.new_profiles[key] = found.id
        return found.id

    @abstractmethod
    def _lock_settings(self) -> None:
        """Block other transactions that set or resolve policies until this one ends."""

    def _resolve(self, kind: str, tier: str, override: str) -> Policy:
        layers = self._layers(kind, tier)
        by_job = _settings_decoder.decode(override) if override else NO_SETTINGS
        by_kind = merge_settings(layers.get("handler", NO_SETTINGS), layers.get("kind", NO_SETTINGS))
        return resolve(tier or None, by_kind, layers.get("tier", NO_SETTINGS), by_job)

    def _layers(self, kind: str, tier: str) -> dict[str, Settings]:
        return {scope: _settings_decoder.decode(body) for scope, _, body in self.rows("settings", kind=kind, tier=tier)}

    def policy_of(self, job: JobRecord) -> Policy:
        """Return the policy that a lease on this job would get now."""
        override = "" if job.override is None else job.override.decode()
        found = self.record(_Profile, "find_profile", kind=job.kind, tier=job.tier or "", override=override)
        assert found is not None
        return self._policy(found.policy_id)

    def settings_of(self, scope: Layer, name: str) -> Settings:
        """Return the settings of one layer. No other transaction changes them until this one ends."""
        self._lock_settings()
        layers = self._layers("", name) if scope == "tier" else self._layers(name, "")
        return layers.get(scope, NO_SETTINGS)

    def set_settings(self, scope: Scope, name: str, settings: Settings | None) -> None:
        """Set the operator's settings for a kind or a tier. None removes them."""
        self._lock_settings()
        if settings is None:
            self.rows("drop_settings", scope=scope, name=name)
        else:
            self.rows("upsert_settings", scope=scope, name=name, body=_encode(settings).decode())
        self._refresh_profiles(scope, name)

    def declare(self, declaration: Declaration) -> None:
        self._lock_settings()
        kind, queue, settings, flow, at, by = declaration
        bodies = {"body": _encode(settings).decode(), "flow": _encode(flow).decode()}
        self.rows("upsert_declaration", kind=kind, queue=queue, **bodies, declared_at=at, declared_by=by)
        self._refresh_profiles("kind", kind)

    def drop_declaration(self, kind: str) -> None:
        self._lock_settings()
        self.rows("drop_declaration", kind=kind)
        self._refresh_profiles("kind", kind)

    def _refresh_profiles(self, scope: Scope, name: str) -> None:
        for id_, kind, tier, override in self.rows(f"profiles_of_{scope}", name=name):
            self.rows("update_profile", policy_id=self._policy_id(self._resolve(kind, tier, override)), id=id_)

    def all_settings(self) -> list[tuple[str, str, Settings]]:
        """Return scope, name and settings of every layer, sorted by scope and name."""
        return [(scope, name, _settings_decoder.decode(body)) for scope, name, body in self.rows("all_settings")]

    def declarations(self) -> list[Declaration]:
        """Return the declarations of handlers, by kind."""
        return [
            Declaration(kind, queue, _settings_decoder.decode(body), _flow_decoder.decode(flow), at, by)
            for kind, queue, body, flow, at, by in self.rows("declarations")
        ]
