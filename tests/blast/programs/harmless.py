"""An app whose handler needs an environment and descriptors."""

import os
from pathlib import Path

from holdfast import App

app = App(os.environ["HOLDFAST_URL"])


@app.handler(attempts_max=1, isolation="process")
def plain() -> str:
    with Path(os.devnull).open() as file:
        return file.read() + str(len(os.environ) > 0)
