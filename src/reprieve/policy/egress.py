"""Where an undo request may go: the origin of the call it undoes, at one address that was checked.

    same scheme, host and port? ─▶ resolve once ─▶ public, or the forward call's own address? ─▶ connect there

A recorded URL is hostile input when it is replayed: other schemes, user names in the URL, odd spellings of addresses
and
names that point inside are refused. Redirects are never followed; that is the sender's part.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from reprieve.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # host, port → addresses
    Resolve = Callable[[str, int], Sequence[str]]

_PORTS = {"http": 80, "https": 443}
# What these carry inside is an IPv4 address; the outer one looks public.
_CARRIERS = (
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2002::/16"),
)
_SHARED = ipaddress.ip_network("100.64.0.0/10")
# Clouds hand out a machine's credentials here. No undo has business there, whatever the effect claims to have been.
_NEVER = tuple(
    ipaddress.ip_network(one)
    for one in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "100.100.100.200/32",
        "0.0.0.0/8",
        "::/128",
        "224.0.0.0/3",
        "ff00::/8",
    )
)


def origin_of(url: str) -> str:
    """scheme://host:port. Raises `Refused` for what is no plain address on the web."""
    shown = url if len(url) < 200 else url[:200] + "…"
    if any(ord(ch) <= 32 or ch in "\\\x7f" for ch in url):
        raise Refused(f"{shown!r} is no address on the web; nothing was sent")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as wrong:
        raise Refused(f"{shown!r} is no address on the web ({wrong}); nothing was sent") from wrong
    if parts.scheme not in _PORTS or not host:
        raise Refused(f"{shown!r} is no address on the web; nothing was sent")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise Refused(
            "a URL with a user name or password in it is not sent",
            hints=["name the credential by reference, as env:VAR or keyring:NAME"],
        )
    shown_host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown_host}:{_PORTS[parts.scheme] if port is None else port}"


def address_for(
    forward: str,
    url: str,
    *,
    forward_address: str = "",
    resolve: Resolve | None = None,
) -> str:
    """The address to connect to for an undo of a call to the origin `forward`. Raises `Refused`.

    `forward_address`: the address that the forward call went to, if it was recorded; an inner address is allowed only
    where that is the same, or where the forward URL itself spelled it out.
    """
    target = origin_of(url)
    wanted = origin_of(forward) if forward else ""
    if target != wanted:
        raise Refused(
            f"the undo goes to {target}, the effect went to {wanted or 'nowhere known'}; nothing was sent",
            hints=["an undo stays at the origin of what it undoes"],
        )
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    literal = _literal(host)
    if literal is not None:
        _refuse_never(literal)
        return str(literal)  # the forward call spelled out the very same address
    _refuse_odd(host)
    found = (resolve or _resolve)(host, port)
    if not found:
        raise Refused(f"{host!r} has no address")
    checked = [one for one in found if is_public(one) or (forward_address and _same(one, forward_address))]
    if host == "localhost" or host.endswith(".localhost"):
        checked = [one for one in found if ipaddress.ip_address(one.partition("%")[0]).is_loopback]
    if len(checked) != len(found):
        bad = next(one for one in found if one not in checked)
        raise Refused(
            f"{host} leads to {bad}, inside this network; nothing was sent",
            hints=["an undo goes inside only where the effect is known to have gone to that very address"],
        )
    for one in checked:
        _refuse_never(ipaddress.ip_address(one.partition("%")[0]))
    if forward_address and any(_same(one, forward_address) for one in checked):
        return str(ipaddress.ip_address(forward_address))
    return checked[0]


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet: not inner, loopback, link-local, shared, nor a carrier of
    those."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if any(found in network for network in _CARRIERS):
            return False
    elif found in _SHARED:
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved and not found.is_unspecified


def _refuse_never(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    is_disguised = isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped is not None or any(address in network for network in _CARRIERS)
    )
    if is_disguised or any(address in network for network in _NEVER):
        raise Refused(f"{address} is no place for an undo; nothing was sent")


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host spells out in the one usual form."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _refuse_odd(host: str) -> None:
    """127.1, 0x7f.1, 2130706433, ①②⑦: what a resolver may take for an address is not taken for a name."""
    if not host.isascii():
        raise Refused(f"{host!r} holds letters that a resolver may read as others; nothing was sent")
    last = host.rstrip(".").rpartition(".")[2]
    if last[:1].isdigit() or last.lower().startswith("0x"):
        raise Refused(f"{host!r} is an odd spelling of an address; nothing was sent")


def _same(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one.partition("%")[0]) == ipaddress.ip_address(other.partition("%")[0])
    except ValueError:
        return False


def _resolve(host: str, port: int) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as wrong:
        raise Refused(f"{host!r} has no address ({wrong})") from wrong
    return list(dict.fromkeys(str(one[4][0]) for one in found))
