"""JSON Schemas (2020-12) of what commands answer, made of their SHAPES."""

from typing import Any

import msgspec

from holdfast.cli.envelope import SCHEMA_VERSION
from holdfast.cli.shapes import SHAPES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"


def schema_of(command: str) -> dict[str, Any]:
    """Of one line that this command answers with: a success with its `data`, or a failure."""
    shapes = SHAPES[command]
    made, parts = msgspec.json.schema_components(shapes, ref_template=_REF)
    forms = [_closed(form) for form in made]
    data = forms[0] if len(forms) == 1 else {"anyOf": forms}
    kept = {name: _closed(part) for name, part in parts.items()}
    return {
        "$schema": DIALECT,
        "title": f"holdfast {command}",
        "oneOf": [_success(data), _failure()] if forms else [_failure()],
        **({"$defs": kept} if kept else {}),
    }


def _success(data: dict[str, Any]) -> dict[str, Any]:
    return _object(schema_version={"const": SCHEMA_VERSION}, success={"const": True}, data=data)


def _failure() -> dict[str, Any]:
    return _object(
        schema_version={"const": SCHEMA_VERSION},
        success={"const": False},
        error={"type": "string"},
        error_code={"type": "string"},
        error_context={"type": "object"},
        suggested_action={"type": "string"},
    )


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Answers of commands that take a --request-id have that beside these."""
    both = {**properties, "request_id": {"type": "string"}}
    return {"type": "object", "properties": both, "required": list(properties), "additionalProperties": False}


def _closed(part: dict[str, Any]) -> dict[str, Any]:
    """No answer has a field that its shape has not."""
    if part.get("type") != "object" or "properties" not in part:
        return part
    return {**part, "additionalProperties": False}
