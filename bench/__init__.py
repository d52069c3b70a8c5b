"""What Holdfast does in a second, beside the same statements without it. `python -m bench --help` tells how to ask."""

import warnings

# Asked for by the PostgreSQL wheel, which then does without.
warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
