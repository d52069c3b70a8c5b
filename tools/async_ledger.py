"""Makes src/holdfast/aio/ledger.py of the verbs of `Ledger`. `make docs` runs this; a test fails if the file is out of date."""

import ast
import builtins
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.ledger import Ledger

ROOT = Path(__file__).parents[1]
MADE = ROOT / "src/holdfast/aio/ledger.py"
HEAD = '''"""Ledger for `await`. Made of the verbs of `Ledger` by tools/async_ledger.py: do not change it by hand."""

{imports}

class AsyncLedger(AsyncLedgerBase):
    """The verbs of a `Ledger`, to be awaited. Each runs in a thread.

    Made by `holdfast.aio.open`. That of an app is `app.aio.ledger`.
    """
'''


def by_hand() -> set[str]:
    """Verbs that are written by hand. The file is parsed, not imported, because the generated part may be missing or broken."""
    tree = ast.parse((MADE.parent / "threads.py").read_text())
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AsyncLedgerBase"]
    return {node.name for node in found.body if isinstance(node, ast.AsyncFunctionDef)}


def verbs() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every public verb of a ledger with the module it is written in."""
    for kind in Ledger.__mro__[1:]:
        if kind is object:
            continue
        tree = ast.parse(inspect.getsource(importlib.import_module(kind.__module__)))
        [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not node.decorator_list:
                yield kind.__module__, node


class Names(ast.NodeTransformer):
    """Collects the imports that the signatures need. Verbs are called `list` and `limits`, so the type and the module are not."""

    def __init__(self, module: str, imports: set[str]) -> None:
        self._known = dict(_imports_of(module))
        self._module = module
        self._imports = imports

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "list":
            self._imports.add("import builtins")
            return ast.parse("builtins.list", mode="eval").body
        if node.id == "limits":
            self._imports.add("from holdfast.core import limits as core_limits")
            return ast.parse("core_limits", mode="eval").body
        if not hasattr(builtins, node.id):
            self._imports.add(self._known.get(node.id, f"from {self._module} import {node.id}"))
        return node

    def annotation(self, node: ast.expr | None) -> ast.expr:
        assert node is not None, f"a verb of {self._module} has a parameter without annotation"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        found = self.visit(node)
        assert isinstance(found, ast.expr)
        return found


def _imports_of(module: str) -> Iterator[tuple[str, str]]:
    """The names that a module imports, each with the statement for it alone."""
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                line = f"import {name}" if isinstance(node, ast.Import) else f"from {node.module} import {name}"
                yield alias.asname or alias.name, line


def method(module: str, verb: ast.FunctionDef, imports: set[str]) -> str:
    names, args = Names(module, imports), verb.args
    waits = any(one.arg == "timeout" for one in args.kwonlyargs)
    for one in [*args.args[1:], *args.kwonlyargs, *([args.kwarg] if args.kwarg else [])]:
        one.annotation = names.annotation(one.annotation)
    args.defaults = [names.visit(one) for one in args.defaults]
    args.kw_defaults = [None if one is None else names.visit(one) for one in args.kw_defaults]
    returns = ast.unparse(names.annotation(verb.returns))
    passed = [one.arg for one in args.args[1:]] + [f"{one.arg}={one.arg}" for one in args.kwonlyargs]
    if args.kwarg is not None:
        passed.append(f"**{args.kwarg.arg}")
    asked = f"lambda ledger: ledger.{verb.name}({', '.join(passed)})"
    if returns.startswith("Generator["):
        imports.add("from collections.abc import AsyncGenerator")
        imports.discard(dict(_imports_of(module))["Generator"])
        item = returns.removeprefix("Generator[").partition(",")[0]
        head, body = f"def {verb.name}({ast.unparse(args)}) -> AsyncGenerator[{item}, None]", f"return self._each({asked})"
    else:
        call = f"await self.{'_wait' if waits else '_call'}({asked})"
        head, body = f"async def {verb.name}({ast.unparse(args)}) -> {returns}", call if returns == "None" else f"return {call}"
    said = ast.get_docstring(verb)
    doc = "" if said is None else '        """' + said.replace("\n", "\n        ").replace("\n        \n", "\n\n") + _end(said)
    return f"    {head}:\n{doc}        {body}\n"


def _end(said: str) -> str:
    return '\n        """\n' if "\n\n" in said else '"""\n'


def made() -> str:
    """The text of the file as it should be."""
    imports, methods = {"from holdfast.aio.threads import AsyncLedgerBase"}, []
    for module, verb in sorted(verbs(), key=lambda one: one[1].name):
        if verb.name not in by_hand():
            methods.append(method(module, verb, imports))
    text = HEAD.format(imports="\n".join(sorted(imports))) + "\n" + "\n".join(methods)
    for command in (["check", "--select", "I", "--fix-only"], ["format"]):
        ran = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(MADE), "-"]
        text = subprocess.run(ran, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    MADE.write_text(made())
