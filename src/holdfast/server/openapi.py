"""The OpenAPI 3.1 document, made from the table of routes."""

from typing import Any

import msgspec

from holdfast import errors
from holdfast.core import limits
from holdfast.errors import HoldfastError
from holdfast.server.problems import PROBLEM_TYPE, Problem
from holdfast.server.routes import CALLBACK_PATH, LOGIN_PATH, Nothing, Route
from holdfast.server.streams import EVENT_STREAM
from holdfast.version import __version__

CREATED = 201
_COMMON = ("validation_error", "limit_exceeded", "too_many_requests", "internal", "unavailable", "misdirected")
"""Every route may answer these."""
_PARAMETERS: dict[str, dict[str, Any]] = {
    "job_id": {"type": "integer", "minimum": 1, "maximum": limits.JOB_ID_MAX},
    "scope": {"type": "string", "enum": ["kinds", "tiers"]},
}
"""The schemas of parts of a path that are not any text."""
_HOLDER = ("fence_lost", "lease_conflict", "invalid_transition", "cancelled", "signature_invalid", "gate_denied")
_WRITE = ("conflict", "invalid_transition", "idempotency_conflict", "unsupported_media_type", "request_timeout", "not_claimable")


def error_classes() -> dict[str, type[HoldfastError]]:
    """Return every error by its code."""
    found: dict[str, type[HoldfastError]] = {}
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, HoldfastError) and value is not HoldfastError:
            found.setdefault(value.code, value)
    return found


def codes_of(route: Route) -> list[str]:
    """Return the codes of the errors that a route may answer."""
    codes = set(_COMMON)
    if route.least != "none" or route.verb == "session":
        codes |= {"unauthenticated"}
    if route.least not in ("none", "any"):
        codes |= {"forbidden"}
    if "{" in route.path:
        codes |= {"not_found"}
    if route.path in (LOGIN_PATH, CALLBACK_PATH):
        codes |= {"not_found", "unauthenticated", "forbidden"}
    if route.method != "GET":
        codes |= set(_WRITE)
    if route.least == "worker":
        codes |= {*_HOLDER, "not_stalled_yet", "refused_by_validator"}
    if EVENT_STREAM in route.media:
        codes |= {"conflict"}
    if route.path.endswith("/gate"):
        codes |= {"gate_denied"}
    return sorted(codes)


def document(routes: list[Route], url: str = "/") -> dict[str, Any]:
    """Return the document of these routes."""
    types: list[Any] = [Problem]
    for route in routes:
        types += [one for one in (route.body, route.query, route.answer) if one not in (None, dict, Nothing, Any)]
    unique = list({repr(one): one for one in types}.values())
    schemas, components = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    by_type = {repr(one): schema for one, schema in zip(unique, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, components)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {"title": "Holdfast", "version": __version__, "description": "A durable ledger of jobs over HTTP."},
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": _problem_response("A refusal.", by_type)},
        },
    }


def _operation(route: Route, by_type: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.path.split("/")[2]] if route.path.startswith("/v1/") else ["server"],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": _responses(route, by_type),
    }
    if route.least == "none":
        made["security"] = []
    if route.body is not None:
        schema = {"type": "object"} if route.body in (dict, Nothing) else by_type[repr(route.body)]
        required = route.body is not dict and any(field.required for field in msgspec.structs.fields(route.body))
        made["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return made


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS.get(name, {"type": "string"})}
        for name in route.parameters
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is Nothing:
        return []
    [schema], parts = msgspec.json.schema_components([route.query], ref_template="#/components/schemas/{name}")
    own = parts[schema["$ref"].rpartition("/")[2]]
    required = own.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _nullable_removed(value)}
        for name, value in own["properties"].items()
    ]


def _nullable_removed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter: a parameter is left out instead of null."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default") or value is not None}
    if not options:
        return rest
    rest.pop("anyOf", None)
    return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}


def _has_tag(route: Route) -> bool:
    """Return whether the answer has an ETag that a reader can send back."""
    return (route.method, route.path) == ("GET", "/v1/jobs/{job_id}")


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    if _has_tag(route):
        names["If-None-Match"] = 'The revision that the caller has, in quotes: "12".'
    if EVENT_STREAM in route.media:
        names["Last-Event-ID"] = "The position after which to go on. It goes before `after`."
    if route.method != "GET":
        names["Idempotency-Key"] = "The request id. The same key and body get the same answer."
        if "{job_id}" in route.path:
            names["If-Match"] = 'The revision that the job has to have, in quotes: "12".'
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in names.items()
    ]


def _responses(route: Route, by_type: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done."}
    if route.path.startswith("/v1/"):
        answer["headers"] = _answer_headers(route)
    if route.answer is not None:
        schema = {} if route.answer in (Any, dict, Nothing) else by_type[repr(route.answer)]
        answer["content"] = {"application/json": {"schema": schema}}
    if route.media:
        answer["content"] = {kind: {"schema": {"type": "string"}} for kind in route.media}
    made: dict[str, Any] = {str(route.status): answer}
    if route.status == CREATED:
        made["200"] = {**answer, "description": "It was there before."}
    if _has_tag(route):
        made["304"] = {"description": "The job still has the revision of If-None-Match."}
    by_status: dict[int, list[str]] = {}
    known = error_classes()
    for code in codes_of(route):
        by_status.setdefault(known[code].http_status, []).append(code)
        if code == "conflict" and "{job_id}" in route.path:
            by_status.setdefault(412, []).append(code)
    for status, codes in sorted(by_status.items()):
        made[str(status)] = _problem_response(", ".join(codes), by_type)
    return made


def _answer_headers(route: Route) -> dict[str, Any]:
    time = {"type": "string", "format": "date-time"}
    found = {"Holdfast-Now": {"description": "The ledger's time.", "schema": time}}
    if route.method != "GET":
        text = "true if this request was answered before: nothing was changed now."
        found["Idempotent-Replayed"] = {"description": text, "schema": {"type": "string", "enum": ["true"]}}
    return found


def _problem_response(text: str, by_type: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {PROBLEM_TYPE: {"schema": by_type[repr(Problem)]}}}
