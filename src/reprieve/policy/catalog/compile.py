"""Make `compiled.json` of the YAML files beside it: `python -m reprieve.policy.catalog.compile`.

A test says when it is stale.
"""

from __future__ import annotations

import json
import os
import sys

from reprieve.policy.catalog.load import COMPILED, read
from reprieve.policy.catalog.schema import check


def compiled() -> str:
    """The text of the compiled catalog."""
    here = os.path.dirname(os.path.abspath(__file__))
    names = sorted(name for name in os.listdir(here) if name.endswith(".yaml"))
    documents = [[name.removesuffix(".yaml"), check(read(os.path.join(here, name)), name)] for name in names]
    return json.dumps(documents, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def main() -> int:
    """Write it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), COMPILED)
    text = compiled()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
