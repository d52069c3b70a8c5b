"""The OpenAPI document."""

from openapi_spec_validator import validate

from holdfast.server.routes import ROUTES
from tests.support.server import RunningServer


def test_the_document_is_valid_openapi_and_has_every_route(served: RunningServer) -> None:
    document = served.anonymous().get("/openapi.json").data
    validate(document)
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["summary"], route.path
        assert str(route.status) in operation["responses"]
