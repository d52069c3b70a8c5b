"""An app for ledgers that check results."""

from holdfast import App
from holdfast.ledger.validators import Validator


def validating(kind: str, *validators: Validator) -> App:
    """Return an app with these validators for one kind of job."""
    app = App("sqlite:///none.db")
    app.handler(kind, validators=validators)(lambda: None)
    return app
