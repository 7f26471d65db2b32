"""Credentials by reference: the journal holds where a secret is and a keyed fingerprint of it, never the secret."""

from __future__ import annotations

import os

from reprieve.errors import Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FORMS = ("env:", "keyring:", "credential:")
# credential:HEADER@HOST is one whose place is not known: a person names it when it is needed
_ASKED = "REPRIEVE_CREDENTIAL_"
_SHORTEST = 6  # a variable that holds less is no secret, and equal to many things
# headers that carry a right, by a part of their name
_RIGHTS = ("authorization", "cookie", "api-key", "apikey", "token", "secret", "session", "signature", "x-auth", "csrf",
           "password", "access-key", "credential")  # fmt: skip
_RIGHT_WORDS = frozenset(("key", "auth", "jwt", "sig", "pass", "pwd"))
# keys that open nothing
_NO_RIGHTS = frozenset(("idempotency", "cache", "surrogate", "partition", "routing", "dedup", "websocket"))
# words that an Authorization begins with when it is made for one request alone
_SIGNED = ("AWS4-HMAC", "Digest ", "HMAC", "Hawk ", "Signature ", "OAuth ", "SharedKey")
_PREFIXES = ("Bearer ", "Basic ", "Token ", "token ")


def is_reference(text: str) -> bool:
    """Whether it names a credential: env:VAR, keyring:NAME, credential:WHAT, after a word such as Bearer."""
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
    if name.startswith("credential:"):
        variable = asked_variable(name)
        value = os.environ.get(variable, "")
        if not value:
            what, _, host = name[11:].partition("@")
            raise Refused(
                f"the credential in '{what}' for {host} was in no variable when the effect was made",
                hints=[f"give it now: set {variable} to the whole value of the header '{what}'"],
            )
        return word + value
    raise Usage(f"'{reference}' is no credential reference", hints=["env:VARIABLE or keyring:SERVICE/USER"])


def asked_variable(reference: str) -> str:
    """The variable in which a person gives a credential whose place is not known."""
    name = reference.removeprefix("credential:").upper()
    return _ASKED + "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def is_right(header: str) -> bool:
    """Whether a header of that name carries a right: its value is never kept."""
    name = header.lower()
    words = set(name.replace("_", "-").split("-"))
    return any(part in name for part in _RIGHTS) or bool(words & _RIGHT_WORDS and not words & _NO_RIGHTS)


def is_signed(headers: Mapping[str, str]) -> bool:
    """Whether a request is signed: nobody can send another one with the same headers."""
    return any(
        value.startswith(_SIGNED) if name.lower() == "authorization" else "signature" in name.lower()
        for name, value in headers.items()
    )


def referenced(headers: Mapping[str, str], host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Those headers that carry a right, each by the place where its secret is: a variable that holds it just now."""
    places = {value: name for name, value in sorted(environ.items(), reverse=True) if len(value) >= _SHORTEST}
    found = {}
    for name, value in headers.items():
        if not is_right(name):
            continue
        word = next((w for w in _PREFIXES if value.startswith(w)), "")
        place = places.get(value[len(word) :])
        if place is not None:
            found[name] = f"{word}env:{place}"
        elif value in places:
            found[name] = f"env:{places[value]}"
        else:
            found[name] = f"credential:{name.lower()}@{host}"
    return found


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


def fingerprints_of(
    references: Mapping[str, str], headers: Mapping[str, str], sign: Callable[[bytes], str]
) -> dict[str, str]:
    """Reference → keyed fingerprint of the value that the request really had."""
    return {reference: sign(headers[name].encode()) for name, reference in references.items()}


def _split(text: str) -> tuple[str, str]:
    for word in _PREFIXES:
        if text.startswith(word) and text[len(word) :].startswith(_FORMS):
            return word, text[len(word) :]
    return "", text
