"""An undo request goes where its effect went, to an address that was checked, and nowhere else."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from reprieve.effects.wire import send
from reprieve.errors import Refused
from reprieve.policy.egress import address_for, is_public, origin_of

API = "https://api.example:443"
PUBLIC = "93.184.216.34"


def leads_to(*addresses: str):
    return lambda host, port: list(addresses)


ODD = [
    "127.1", "0", "2130706433", "0x7f.1", "017700000001", "①②⑦.⓪.⓪.①", "[::ffff:127.0.0.1]", "169.254.169.254",
    "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "127.0.0.1.", "0x7f000001", "127.0.1", "[::]", "0.0.0.0", "[fe80::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", [*ODD, "100.64.0.1", "127.0.0.1", "10.0.0.1", "[::1]", "localhost"])
def test_s19_an_inner_address_is_no_place_for_the_undo_of_a_public_call(host: str) -> None:
    with pytest.raises(Refused):
        address_for(API, f"https://{host}/x", resolve=leads_to("127.0.0.1"))


@pytest.mark.parametrize("host", ODD)
def test_s19_odd_spellings_and_metadata_are_refused_whatever_the_effect_claims(host: str) -> None:
    """An agent may record any forward URL it likes; these are refused even then."""
    with pytest.raises(Refused):
        address_for(f"http://{host}:80", f"http://{host}/x", resolve=leads_to("127.0.0.1"))


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "::1", "fd00:ec2::254",
     "fe80::1%eth0", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "nonsense"],
)  # fmt: skip
def test_s19_names_that_lead_inside_are_refused(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(Refused, match="inside"):
        address_for(API, "https://api.example/x", resolve=leads_to(address))
    with pytest.raises(Refused, match="inside"):
        address_for(API, "https://api.example/x", resolve=leads_to(PUBLIC, address))


def test_s20_the_address_that_was_checked_is_the_one_to_connect_to() -> None:
    """A name that leads somewhere public first and to loopback second is resolved once."""
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    assert address_for(API, "https://api.example/x", resolve=lambda host, port: next(answers)) == PUBLIC
    assert next(answers) == ["127.0.0.1"], "it was resolved a second time"


def test_s20_an_inner_name_is_allowed_where_the_effect_is_known_to_have_gone() -> None:
    inner = leads_to("10.0.0.5")
    assert address_for(API, "https://api.example/x", forward_address="10.0.0.5", resolve=inner) == "10.0.0.5"
    with pytest.raises(Refused):
        address_for(API, "https://api.example/x", forward_address="10.0.0.6", resolve=inner)
    with pytest.raises(Refused):
        address_for(API, "https://api.example/x", forward_address=PUBLIC, resolve=leads_to("169.254.169.254"))


def test_a_server_on_this_machine_is_reached_where_the_effect_went_to_it() -> None:
    assert address_for("http://127.0.0.1:8080", "http://127.0.0.1:8080/x") == "127.0.0.1"
    assert address_for("http://localhost:8080", "http://localhost:8080/x", resolve=leads_to("127.0.0.1")) == "127.0.0.1"
    with pytest.raises(Refused):
        address_for("http://localhost:8080", "http://localhost:8080/x", resolve=leads_to(PUBLIC))


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://api.example/x", "gopher://api.example/x", "javascript:x", "//api.example/x", "/x",
    "", "http://",
     "https://me@api.example/x", "https://me:secret@api.example/x", "https://api.example@evil.example/x",
     "https://api.example\\@evil.example/x", "https://api.example /x", "https://api.example/\r\nHost: evil", "https://[::1/x",
     "https://api.example:99999/x"],
)  # fmt: skip
def test_s19_s21_what_is_no_plain_url_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        address_for(API, url, resolve=leads_to(PUBLIC))


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example/x",
        "https://api.example:8443/x",
        "https://evil.example/x",
        "https://api.example.evil.example/x",
    ],
)
def test_bad_case_27_another_origin_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="the effect went to"):
        address_for(API, url, resolve=leads_to(PUBLIC))
    with pytest.raises(Refused):
        address_for("", url, resolve=leads_to(PUBLIC))


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin_of("https://API.example/a?b#c") == API
    assert origin_of("http://[2001:db8::1]:8080/") == "http://[2001:db8::1]:8080"


def test_s21_a_password_in_a_url_is_not_repeated_in_the_error() -> None:
    with pytest.raises(Refused) as caught:
        origin_of("https://me:hunter2@api.example/")
    assert "hunter2" not in str(caught.value) + str(caught.value.hints)


# -- redirects, against a real server


class Redirecting(http.server.BaseHTTPRequestHandler):
    seen: list[str] = []  # noqa: RUF012

    def do_DELETE(self) -> None:
        type(self).seen.append(self.path)
        self.send_response(302)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/secret")
        self.end_headers()

    do_GET = do_DELETE

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    Redirecting.seen = []
    with http.server.HTTPServer(("127.0.0.1", 0), Redirecting) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_s21_bad_case_27_a_redirect_is_an_answer_and_is_not_followed(server: http.server.HTTPServer) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}/x"
    address = address_for(origin_of(url), url)
    answer = send("DELETE", url, address=address, headers={"Authorization": "Bearer x"})
    assert answer.status == 302
    assert Redirecting.seen == ["/x"]


def test_no_such_name_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match="no address"):
        address_for("https://nothing.invalid:443", "https://nothing.invalid/x", resolve=_nobody)


def _nobody(host: str, port: int) -> list[str]:
    try:
        socket.inet_aton("x")
    except OSError as wrong:
        raise Refused(f"{host!r} has no address ({wrong})") from wrong
    return []
