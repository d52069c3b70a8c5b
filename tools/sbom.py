"""The wheel's software bill of materials (PEP 770), in CycloneDX. Hatchling calls this hook when it builds a wheel.

It is made of the wheel's own metadata. It has no time and no random number, so that two builds of a commit are equal.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.core import CoreMetadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class SbomHook(BuildHookInterface[BuilderConfig]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        core = self.metadata.core
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, f"{core.name}.cdx.json")
        file.write_text(json.dumps(bill(core), indent=2) + "\n", "utf-8")
        build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def bill(core: CoreMetadata) -> dict[str, Any]:
    """Return the bill: the wheel contains this distribution alone, and needs the others, as optional ones with an extra only."""
    extras = [line for lines in core.optional_dependencies.values() for line in lines]
    needed = {
        (name := canonicalize_name(Requirement(line).name)): _component(name, line, scope)
        for scope, lines in (("optional", extras), ("required", core.dependencies))
        for line in lines
    }
    needed.pop(canonicalize_name(core.name), None)  # the extra `all`
    ours = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{core.name}@{core.version}",
        "authors": core.authors,
        "name": core.name,
        "version": core.version,
        "description": core.description,
        "licenses": [{"expression": core.license_expression}],
        "purl": f"pkg:pypi/{core.name}@{core.version}",
    }
    components = [needed[name] for name in sorted(needed)]
    refs = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": components,
        "dependencies": [{"ref": ours["bom-ref"], "dependsOn": refs}],
    }


def _component(name: str, requirement: str, scope: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}"
    wanted = {"name": "holdfast:requirement", "value": requirement}
    return {"type": "library", "bom-ref": purl, "name": name, "scope": scope, "purl": purl, "properties": [wanted]}
