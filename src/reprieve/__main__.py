"""`python -m reprieve`."""

import sys

# `-m` puts the current directory first on the path: a json.py that an agent left in the tree would run as ours
if not sys.flags.safe_path and sys.path:
    del sys.path[0]

from reprieve.cli.entry import run

run()
