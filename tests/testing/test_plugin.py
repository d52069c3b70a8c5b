"""The pytest plugin in a project of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import ROOT
from tests.docs.pages import blocks

pytest_plugins = ["pytester"]

PROGRAM = """
import holdfast

app = holdfast.App("sqlite:///production.db")

@app.handler(attempts_max=2, policy={"backoff_base": "10s"})
def greet(job: holdfast.Context, name: str) -> str:
    if job.job.attempt == 1:
        raise OSError("not yet")
    return f"hello {name}"
"""


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the plugin once, also if it is installed in this environment."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=text)
    return pytester.runpytest_subprocess("-p", "_holdfast_pytest", *arguments)


def test_the_app_of_a_module_uses_the_ledger_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(program=PROGRAM)
    text = """
        import pytest
        from holdfast.testing import drain
        from program import app, greet

        @pytest.mark.parametrize("time", [1, 2])
        def test_greeting(holdfast_bind, holdfast_ledger, holdfast_clock, time):
            assert holdfast_bind(app) is app
            began = holdfast_clock.now()
            job = app.enqueue(greet, name="you")
            assert job.id == 1
            assert drain(app, advance=True).counts == {"queued": 1, "succeeded": 1}
            assert holdfast_ledger.get(job.id).result == "hello you"
            assert (holdfast_clock.now() - began).total_seconds() == 10

        def test_afterwards():
            assert app.url == "sqlite:///production.db"
            assert app.clock is None
    """
    run(pytester, text).assert_outcomes(passed=3)
    assert not (pytester.path / "production.db").exists()


def test_a_test_may_create_its_own_app(pytester: pytest.Pytester) -> None:
    text = """
        from holdfast.testing import drain

        def test_it(holdfast_app, holdfast_clock):
            @holdfast_app.handler()
            def double(n: int) -> int:
                return 2 * n

            job = holdfast_app.options(delay="1h").enqueue(double, n=2)
            assert drain(holdfast_app).runs == ()
            holdfast_clock.advance(3600)
            drain(holdfast_app)
            assert holdfast_app.ledger.get(job.id).result == 4
    """
    run(pytester, text).assert_outcomes(passed=1)


def test_the_example_of_the_guide_works(pytester: pytest.Pytester) -> None:
    """Write the files of the example, each under the name in its first line."""
    found = {block.text.split()[1]: block.text for block in blocks(ROOT / "docs/guides/testing.md", "py")}
    assert found.keys() == {"shop.py", "test_shop.py"}
    for name, text in found.items():
        (pytester.path / name).write_text(text)
    pytester.runpytest_subprocess("-p", "_holdfast_pytest").assert_outcomes(passed=2)


TAMPERING = """
    import apsw
    import pytest
    from holdfast.testing import drain

    def test_it(holdfast_ledger, tmp_path):
        holdfast_ledger.enqueue("k")
        with apsw.Connection(f"{tmp_path}/holdfast.db") as other_program:
            other_program.execute("UPDATE holdfast_jobs SET rev = 7")
"""


def test_an_invalid_history_fails_its_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, TAMPERING)
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["inconsistent job histories:", "*rev*"])


def test_the_place_of_the_ledger_may_be_overridden(pytester: pytest.Pytester, store_url: str) -> None:
    pytester.makeconftest(f"""
        import pytest

        @pytest.fixture
        def holdfast_url():
            return {store_url!r}
    """)
    text = """
        from holdfast.testing import drain

        def test_it(holdfast_app):
            @holdfast_app.handler()
            def work() -> None: ...

            holdfast_app.enqueue(work)
            assert drain(holdfast_app).counts == {"succeeded": 1}
    """
    run(pytester, text).assert_outcomes(passed=1)


def test_the_plugin_can_be_named_by_its_module(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_it(holdfast_ledger): assert holdfast_ledger.list() == []")
    pytester.runpytest_subprocess("-p", "holdfast.testing.plugin").assert_outcomes(passed=1)


def test_a_plugin_that_is_not_used_imports_nothing(pytester: pytest.Pytester) -> None:
    text = """
        import sys

        def test_it():
            assert [name for name in sys.modules if name.split(".")[0] in ("holdfast", "apsw", "msgspec")] == []
    """
    run(pytester, text).assert_outcomes(passed=1)


def test_the_clock_fixture_imports_no_worker(tmp_path: Path) -> None:
    program = "import sys; from holdfast.testing import ManualClock; sys.exit('holdfast.worker' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
