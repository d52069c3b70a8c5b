"""Urls of ledgers: shown without their password, and left to the driver as they were typed."""

import pytest

from holdfast.cli.address import without_password
from holdfast.store.postgres.store import _split


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///holdfast.db", "sqlite:///holdfast.db"),
        ("sqlite:////a:b@c/d.db", "sqlite:////a:b@c/d.db"),
        ("postgresql://ann@db.example:5432/jobs?schema=a", "postgresql://ann@db.example:5432/jobs?schema=a"),
        ("postgresql:///jobs?host=/run/pg", "postgresql:///jobs?host=/run/pg"),
        ("postgresql://ann:x1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1@y1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1/y1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1?y1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1@[::1/jobs", "postgresql://ann:…@[::1/jobs"),
        ("postgresql://h:5/jobs?user=a@b", "postgresql://h:5/jobs?user=a@b"),
        ("postgresql://:x1@h/jobs", "postgresql://:…@h/jobs"),
        ("postgresql:///jobs?user=ann&password=x1&schema=a", "postgresql:///jobs?user=ann&schema=a"),
        ("postgresql:///jobs?password=x1", "postgresql:///jobs"),
        ("postgresql:///jobs?passw%6frd=x1", "postgresql:///jobs"),
        ("postgresql:///jobs?PASSWORD=x1&sslpassword=y1", "postgresql:///jobs"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "left", "schema"),
    [
        ("postgresql://ann@h/jobs", "postgresql://ann@h/jobs", "holdfast"),
        ("postgresql:///jobs?host=/run/pg&schema=a&port=5", "postgresql:///jobs?host=/run/pg&port=5", "a"),
        ("postgresql:///jobs?schema=a", "postgresql:///jobs", "a"),
        ("postgresql:///?sch%65ma=a&options=-c%20x%3D1", "postgresql:///?options=-c%20x%3D1", "a"),
    ],
)
def test_the_driver_gets_what_is_its_own_as_it_was_typed(url: str, left: str, schema: str) -> None:
    assert _split(url)[:2] == (left, schema)
