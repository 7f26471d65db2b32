"""Credentials by reference: the journal holds where a secret is and a keyed fingerprint of it, never the secret."""

from __future__ import annotations

import os

from reprieve.errors import Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FORMS = ("env:", "keyring:")
_PREFIXES = ("Bearer ", "Basic ", "Token ", "token ")


def is_reference(text: str) -> bool:
    """Whether it names a credential: env:VAR or keyring:NAME, after a word such as Bearer."""
    return _split(text)[1].startswith(_FORMS)


def resolve(reference: str) -> str:
    """The value that a reference stands for, with the word before it. Raises Refused if it is not there."""
    word, name = _split(reference)
    if name.startswith("env:"):
        value = os.environ.get(name[4:], "")
        if not value:
            raise Refused(
                f"the credential '{name}' is not set", hints=[f"set the variable {name[4:]} and run it again"]
            )
        return word + value
    if name.startswith("keyring:"):
        try:
            import keyring
        except ImportError:
            raise Refused(f"the credential '{name}' needs the keyring package", hints=["pip install keyring"]) from None
        service, _, user = name[8:].partition("/")
        stored = keyring.get_password(service, user or "reprieve")
        if not stored:
            raise Refused(f"the credential '{name}' is not in the keyring")
        return word + str(stored)
    raise Usage(f"'{reference}' is no credential reference", hints=["env:VARIABLE or keyring:SERVICE/USER"])


def fingerprints(headers: Mapping[str, str], sign: Callable[[bytes], str]) -> dict[str, str]:
    """Reference → keyed fingerprint of what it stands for now, of those that are there."""
    found = {}
    for value in headers.values():
        if is_reference(value):
            try:
                found[value] = sign(resolve(value).encode())
            except Refused:
                continue  # told when it is needed: it may be set by then
    return found


def _split(text: str) -> tuple[str, str]:
    for word in _PREFIXES:
        if text.startswith(word) and text[len(word) :].startswith(_FORMS):
            return word, text[len(word) :]
    return "", text
