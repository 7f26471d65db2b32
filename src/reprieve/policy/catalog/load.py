"""Load the catalog: the shipped rules from one compiled file, the user's from YAML or JSON in a folder of theirs.

Never from the tree: the caller passes folders that an agent can't write to, and nothing here looks anywhere else.
The shipped
YAML is compiled (`python -m reprieve.policy.catalog.compile`), because reading it takes a hundred times as long and
this may stand before every shell command.
"""

from __future__ import annotations

import os

from reprieve.errors import Misconfigured
from reprieve.policy.catalog.model import Catalog
from reprieve.policy.catalog.schema import Rules, check, rules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMPILED = "compiled.json"


def load(extra_dirs: Sequence[str] = ()) -> Catalog:
    """The shipped catalog with the user's rules before it. Raises `Misconfigured` with the exact place of a mistake."""
    import json

    shipped = os.path.join(os.path.dirname(__file__), COMPILED)
    with open(shipped, encoding="utf-8") as file:
        documents = json.load(file)
    own = [rules for folder in extra_dirs for rules in _folder(folder)]
    parts: list[Rules] = [*own, *(rules_of(name, document) for name, document in documents)]
    return Catalog(
        tuple(program for part in parts for program in part.programs),
        tuple(rule for part in parts for rule in part.commands),
        tuple(rule for part in parts for rule in part.requests),
        tuple(rule for part in parts for rule in part.tools),
    )


def _folder(folder: str) -> list[Rules]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as wrong:
        raise Misconfigured(f"the rules in {folder} can't be read: {wrong.strerror}") from wrong
    found = []
    for name in names:
        if name.endswith((".yaml", ".yml", ".json")) and not name.startswith("."):
            path = os.path.join(folder, name)
            found.append(rules_of(name, check(read(path), path)))
    return found


def read(path: str) -> object:
    """The document in a YAML or JSON file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as wrong:
        raise Misconfigured(f"{path} can't be read: {wrong}") from wrong
    if path.endswith(".json"):
        import json

        try:
            document: object = json.loads(text)
        except ValueError as wrong:
            raise Misconfigured(f"{path} is not JSON: {wrong}") from wrong
        return document
    try:
        import yaml
    except ImportError as missing:
        raise Misconfigured(
            f"{path} is YAML, and the YAML reader is not installed",
            hints=["pip install 'reprieve[policy]', or write the rules as JSON"],
        ) from missing
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as wrong:
        raise Misconfigured(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
