"""The entry point of the program `holdfast`. It is outside the package, so it also runs if the package is another project's.

Another project owns the name `holdfast` on the package index. Its package is `holdfast` too, and pip writes its files over ours.
Each heartbeat of an agent passes here, so the check only reads the names in a folder, and imports nothing for that.
"""

import os
import sys

DISTRIBUTION = "holdfast-ledger"
"""The name of this distribution on the package index. Its package and its program are `holdfast`."""
_OTHER = "holdfast"
_OLD_SUMMARY = "Summary: A durable ledger of jobs on SQLite or PostgreSQL"
"""A line in the metadata of this distribution when its name was still `holdfast`. Environments of that time go on working."""


def main() -> None:
    """Run the program, or exit with 1 if the package is not ours or will not stay ours."""
    problem = _find_problem()
    if problem is not None:
        sys.exit(_report(*problem))
    from holdfast.program import main as run

    run()


def _find_problem() -> tuple[str, str, str] | None:
    """Return what is wrong, what to do and where it is, or None."""
    here = os.path.dirname(__file__)
    path = (folder or os.curdir for folder in sys.path)
    first = next((folder for folder in path if os.path.exists(os.path.join(folder, "holdfast", "__init__.py"))), None)
    ours, other = _find_distributions({first or here, here})
    if other is not None:
        words = f"the distribution {_OTHER} is installed, which is another project's and replaces files of {DISTRIBUTION}"
        return words, _repair(ours), other
    if first not in (None, here) and os.path.isdir(here) and not os.path.samefile(first, here):
        where = os.path.join(first, "holdfast")
        return "Python finds another package holdfast before this one", "Remove it, or its folder from PYTHONPATH.", where
    if first is None and os.path.isdir(os.path.join(here, "holdfast")):
        return "files of Holdfast are missing", _repair(ours), here
    return None


def _find_distributions(folders: set[str]) -> tuple[str | None, str | None]:
    """Return where the metadata of this distribution and of the other project's are in folders of packages."""
    ours = other = None
    for folder in filter(os.path.isdir, folders):  # a program that was packed into one file has none
        for name in os.listdir(folder):
            if not (name[:8].lower() == _OTHER and name.endswith(".dist-info")):
                continue
            metadata = os.path.join(folder, name)
            if name.startswith(f"{DISTRIBUTION.replace('-', '_')}-"):
                ours = metadata
            elif name.lower().startswith(f"{_OTHER}-") and not _was_ours(metadata):
                other = metadata
    return ours, other


def _was_ours(metadata: str) -> bool:
    """Whether this is no other project's: it is this one's under its old name, or the rest of a distribution that was removed."""
    try:
        with open(os.path.join(metadata, "METADATA"), encoding="utf-8", errors="replace") as file:
            return _OLD_SUMMARY in file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return True


def _repair(ours: str | None) -> str:
    """Return the commands that remove the other distribution, and install this one again from where it came."""
    import json
    from pathlib import Path
    from shlex import quote
    from urllib.parse import unquote, urlsplit

    source = DISTRIBUTION
    if ours is not None:
        source += "==" + Path(ours).stem.rpartition("-")[2]
        origin = Path(ours, "direct_url.json")
        if origin.exists():  # it came from a checkout or a file
            found = json.loads(origin.read_text("utf-8"))
            if Path(unquote(urlsplit(found["url"]).path)).exists():
                source = ("-e " if found.get("dir_info", {}).get("editable") else "") + quote(found["url"])
    pip = f"{quote(sys.executable)} -m pip"
    return f"{pip} uninstall -y {_OTHER} && {pip} install --force-reinstall --no-deps {source}"


def _report(message: str, action: str, found: str) -> str | int:
    """Report the failure like the command line, which cannot be imported now. Return what sys.exit takes."""
    if "--json" not in sys.argv:
        return f"Failed: {message}: {found}\nTry: {action}"
    import json

    answer = {"error": message, "error_code": "wrong_package", "error_context": {"path": found}, "suggested_action": action}
    sys.stdout.write(json.dumps({"schema_version": "v1", "success": False, **answer}, separators=(",", ":")) + "\n")
    return 1
