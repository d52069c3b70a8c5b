"""Verbs that sum up the whole ledger: what its first page shows, kinds, what waits for a person, and sessions of agents."""

from typing import TYPE_CHECKING

from holdfast.core import limits
from holdfast.ledger.base import LedgerBase

if TYPE_CHECKING:
    from holdfast.ledger.overview import AgentSession, AttentionItem, KindRecord, Overview


class OverviewVerbs(LedgerBase):
    def overview(self) -> "Overview":
        """Return everything that the first page of a dashboard shows, in one answer.

        The time that it takes depends on the number of queues, workers and held jobs, not on the number of jobs.
        """
        from holdfast.ledger.overview import overview_of

        health = self._store.vitals()
        return self._history.read(lambda counted: overview_of(counted, self.id, health))

    def kinds(self) -> "list[KindRecord]":
        """Return every kind that has jobs, by name, with its events, errors, waits and runs of the last hour."""
        from holdfast.ledger.overview import kinds_of

        return self._history.read(kinds_of)

    def attention(self, *, limit: int = limits.ATTENTION_MAX) -> "list[AttentionItem]":
        """Return what waits for a person, oldest first. If it is more than `limit`, requests for assistance stay in the list.

        That is: holders that request assistance, stalls under a policy that requires operator coverage, jobs that an operator
        assists, failed compensations, and sinks to which deliveries were given up.
        """
        from holdfast.ledger.overview import attention_of

        limits.check_integer("limit", limit, 1, limits.ATTENTION_MAX)
        return self._store.read(lambda session: attention_of(session, limit))

    def agents(self, *, limit: int = limits.PAGE_MAX) -> "list[AgentSession]":
        """Return the sessions of agents, the most recently active first."""
        from holdfast.ledger.overview import agents_of

        limits.check_integer("limit", limit, 1, limits.PAGE_MAX)
        return self._store.read_statement(lambda session: agents_of(session, limit))
