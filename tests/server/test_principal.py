"""What each role may do, which queues a caller sees, and the actor of what it changes."""

from contextlib import nullcontext
from typing import Any, get_args

import pytest

from holdfast.core.access import AccessRole
from holdfast.core.model import Actor, Role
from holdfast.errors import Forbidden, HoldfastError
from holdfast.server.principal import ALLOWED, Least, Principal, anonymous

MAY: dict[str, set[str]] = {
    "reader": {"none", "any", "reader"},
    "client": {"none", "any", "reader", "client", "client_or_worker"},
    "worker": {"none", "any", "reader", "client_or_worker", "worker"},
    "operator": {"none", "any", "reader", "client", "client_or_worker", "worker", "operator"},
    "admin": {"none", "any", "reader", "client", "client_or_worker", "worker", "operator", "admin"},
}


def test_every_requirement_is_known() -> None:
    assert set(ALLOWED) == set(get_args(Least))


@pytest.mark.parametrize("role", AccessRole)
@pytest.mark.parametrize("least", get_args(Least))
def test_each_role_may_what_the_table_says(role: AccessRole, least: Least) -> None:
    caller = Principal("kim", role)
    assert caller.may(least) == (least in MAY[role])
    with pytest.raises(Forbidden) if least not in MAY[role] else nullcontext() as refused:
        caller.check_role(least, "cancel", "cancel a job")
    assert refused is None or role.value not in refused.value.context["allowed"]


def test_an_anonymous_caller_may_use_only_what_is_open_to_all() -> None:
    caller = anonymous("192.0.2.7")
    assert [least for least in get_args(Least) if caller.may(least)] == ["none"]
    assert caller.is_anonymous and not caller.sees("mail") and not caller.sees_all
    assert caller.actor() is None and caller.role_name is None
    assert caller.can([("health", "none"), ("read", "reader")]) == []


def test_a_caller_can_use_the_verbs_of_its_routes() -> None:
    routes: list[tuple[str, Least]] = [
        ("read", "reader"),
        ("cancel", "client"),
        ("read", "any"),
        ("prune", "admin"),
        ("x", "none"),
    ]
    assert Principal("kim", AccessRole.CLIENT).can(routes) == ["cancel", "read"]


def test_a_caller_sees_the_queues_of_its_patterns() -> None:
    caller = Principal("kim", AccessRole.READER, ("mail", "crawl-*"))
    assert [queue for queue in ("mail", "mail2", "crawl-1", "crawl", "Mail") if caller.sees(queue)] == ["mail", "crawl-1"]
    assert not caller.sees_all
    assert Principal("kim", AccessRole.READER).sees_all


@pytest.mark.parametrize(
    ("role", "actor"),
    [
        ("reader", None),
        ("client", Actor(Role.CLIENT, "kim")),
        ("worker", Actor(Role.WORKER, "kim", "http")),
        ("operator", Actor(Role.OPERATOR, "kim")),
        ("admin", Actor(Role.OPERATOR, "kim")),
    ],
)
def test_the_actor_is_the_tokens_name(role: str, actor: Actor | None) -> None:
    assert Principal("kim", AccessRole(role)).actor() == actor


def test_a_workers_incarnation_is_that_of_its_header() -> None:
    caller = Principal("arm-1", AccessRole.WORKER)
    assert str(caller.actor("boot3")) == "worker:arm-1#boot3"
    assert str(caller.actor("boot3", "worker:arm-1#boot4")) == "worker:arm-1#boot4", "its own name is always allowed"


@pytest.mark.parametrize(
    ("wanted", "actor"),
    [
        ("worker:crawl-7#boot3", "worker:crawl-7#boot3"),
        ("worker:crawl-7", "worker:crawl-7#here"),
        ("worker:crawl-a#b#c", "worker:crawl-a#b#c"),
        ("operator:ann", "operator:ann"),
    ],
)
def test_a_caller_acts_as_those_that_its_patterns_allow(wanted: str, actor: str) -> None:
    caller = Principal("gate", AccessRole.ADMIN, act_as=("worker:crawl-*", "operator:ann"))
    assert str(caller.actor("here", wanted)) == actor


@pytest.mark.parametrize("wanted", ["worker:mail-1#x", "operator:bob", "operator:annie", "client:ann", "operator:crawl-7"])
@pytest.mark.parametrize("act_as", [(), ("worker:crawl-*", "operator:ann")])
def test_a_caller_does_not_act_as_others(wanted: str, act_as: tuple[str, ...]) -> None:
    with pytest.raises(HoldfastError) as refused:
        Principal("gate", AccessRole.ADMIN, act_as=act_as).actor("here", wanted)
    assert (refused.value.code, refused.value.http_status) == ("forbidden", 403)


def test_a_workers_token_acts_only_as_that_worker() -> None:
    caller = Principal("arm-1", AccessRole.WORKER)
    for wanted in ("worker:arm-2#http", "operator:arm-1", "client:arm-1"):
        with pytest.raises(HoldfastError) as refused:
            caller.actor(None, wanted)
        assert refused.value.code == "forbidden"


def test_an_incarnation_is_not_part_of_what_a_pattern_allows() -> None:
    caller = Principal("gate", AccessRole.WORKER, act_as=("worker:a*z",))
    assert caller.actor(None, "worker:a-z#1") is not None
    with pytest.raises(HoldfastError):
        caller.actor(None, "worker:a-b#z")


MALFORMED = ["", "kim", "system:ledger", "admin:kim", "operator:", "worker:#x", "worker:a#", "worker:a\n#b", ":"]


@pytest.mark.parametrize("wanted", MALFORMED)
def test_a_malformed_actor_is_refused(wanted: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        Principal("kim", AccessRole.ADMIN, act_as=("*",)).actor("here", wanted)
    assert (refused.value.code, refused.value.context["field"]) == ("validation_error", "Holdfast-Actor")


@pytest.mark.parametrize("incarnation", ["", "a#b", " a", "a\r\nb"])
def test_a_malformed_incarnation_is_refused(incarnation: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        Principal("kim", AccessRole.WORKER).actor(incarnation)
    assert (refused.value.code, refused.value.context["field"]) == ("validation_error", "Holdfast-Incarnation")


def test_limits_are_counted_by_token_person_or_address() -> None:
    by_token: dict[str, Any] = {"token_id": "abc"}
    keys = [
        Principal("kim", AccessRole.READER, **by_token).key,
        Principal("kim", AccessRole.READER).key,
        anonymous("10.0.0.1").key,
    ]
    assert keys == ["abc", "person:kim", "peer:10.0.0.1"]


def test_the_secret_of_a_session_is_not_in_the_text_of_a_caller() -> None:
    assert "s3cret" not in repr(Principal("kim", AccessRole.READER, session="s3cret"))
