"""The app of the worker in compose.yaml. Replace it by your own. HOLDFAST_URL names the ledger."""

from holdfast import App

app = App()


@app.handler
def greet(name: str) -> str:
    return f"Hello, {name}!"
