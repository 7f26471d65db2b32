"""Secrets do not reach the timeline, harmless text does, and nothing makes redaction slow."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.policy.redact import (
    LIMIT,
    for_people,
    is_sensitive,
    redact,
    redact_beside,
    redact_url,
    redact_words,
    shorten,
)

# Put together at run time, so that no scanner takes this file for a leak.
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2c3D4" * 5
OPENAI = "sk-" + "proj-" + "Ab3" * 12
SLACK = "xoxb-" + "123456789012-abcdefGHIJ"
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxIn0" + ".c2lnbmF0dXJl"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJA=\n-----END RSA " + "PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl -H 'Authorization: Bearer s3cr3tvalue' https://x", "s3cr3tvalue"),
        ('curl -H "authorization: Basic dXNlcjpwYXNz" x', "dXNlcjpwYXNz"),
        ("Cookie: session=abc123; theme=dark", "abc123"),
        ("Set-Cookie: sid=31d4d96e407aad42", "31d4d96e407aad42"),
        ("X-Api-Key: 0123456789abcdef", "0123456789abcdef"),
        ("password=hunter2", "hunter2"),
        ('{"password": "hunter2 with blanks"}', "hunter2 with blanks"),
        ("PGPASSWORD=hunter2 psql", "hunter2"),
        ("export DB_PASSWORD='hun ter2'", "hun ter2"),
        ("--password hunter2 --force", "hunter2"),
        ("--api-key=abcdef", "abcdef"),
        ("GITHUB_TOKEN: abcdef123", "abcdef123"),
        ("client_secret := shhh", "shhh"),
        ("passphrase = \"one two\"", "one two"),
        (f"aws configure set x {AWS}", AWS),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
        (f"git clone https://{GITHUB}@github.com/a/b", GITHUB),
        (f"echo {OPENAI}", OPENAI),
        (f"SLACK {SLACK} x", SLACK),
        (f"jwt {JWT}", JWT),
        (PEM, "MIIEowIBAAKCAQEA"),
        (PEM[:60], "MIIEowIBAAKC"),
        ("psql postgres://ada:s3cret@db.example/prod", "s3cret"),
        ("redis://:p@ss@word@cache:6379/0", "ss@word"),
        ("curl -u ada:hunter2 https://x", "hunter2"),
        ("sshpass -p hunter2 ssh x", "hunter2"),
        ("https://hooks.slack.com/services/T000/B000/XXXXXXXX", "B000"),
        ("git clone https://q8Zt2LmXw9Ab@host/a", "q8Zt2LmXw9Ab"),
        ("PUT https://a.blob.example/c/b?sv=2022&sp=rw&sig=ab%2Fcd%3D", "ab%2Fcd"),
        ("https://b.example/o?X-Amz-Signature=fe5f80f77d5fa3beca", "fe5f80f77d5fa3beca"),
        ("https://maps.example/v1?key=Qz81kd02mvb7&q=x", "Qz81kd02mvb7"),
        ("DB_PASS=hunter2 make", "hunter2"),
        ("MYSQL_PWD=hunter2 mysql", "hunter2"),
        ("STRIPE_KEY=hunter2 make", "hunter2"),
        ("helm install a b --set auth.rootPass=hunter2,x=y", "hunter2"),
        ("curl -d 'user=a&pass=hunter2' x", "hunter2"),
        (r'curl -d "{\"password\": \"hunter2\"}" x', "hunter2"),
        (r'echo "API_KEY = \"hunter2\"" >> .env', "hunter2"),
        ('{"db_pass": "hunter2"}', "hunter2"),
        ("curl -H 'X-Auth: hunter2' x", "hunter2"),
        ("psql -c \"ALTER USER x WITH PASSWORD 'hunter2'\"", "hunter2"),
        (r"psql -c 'ALTER USER x PASSWORD '\''hunter2'\'''", "hunter2"),
        ("CREATE USER x IDENTIFIED WITH mysql_native_password BY 'hunter2'", "hunter2"),
        ("SET PASSWORD FOR x@y = 'hunter2'", "hunter2"),
        ("SET PASSWORD = PASSWORD('hunter2')", "hunter2"),
        ("AccountName=a;AccountKey=hunter2==;EndpointSuffix=x", "hunter2"),
        ("<password>hunter2</password>", "hunter2"),
        ("requests.post(url, auth=('ada', 'hunter2'))", "hunter2"),
        ("machine x login ada password hunter2", "hunter2"),
        ("my password is hunter2, use it", "hunter2"),
        ("https://discord.com/api/webhooks/123456/hunter2hunter2", "hunter2"),
        ("https://api.telegram.org/bot123456789:AAhunter2hunter2hunter2/sendMessage", "hunter2"),
        ("docker login with dckr_" + "pat_hunter2hunter2hunter2", "hunter2"),
    ],
)  # fmt: skip
def test_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "ls -la src",
        "pytest -k test_tokens --max-tokens=100",
        "git commit -m 'explain the cookie banner'",
        "https://example.com/a?b=c",
        "https://ada@dev.example.com/a?key=photos/1.png&sort_key=name&signed=yes",
        "docker run -u 1000:1000 image",
        "risk-free task-list",
        "max_tokens: 4096",
        "SELECT * FROM users",
        "scp file host:/path",
        "git@github.com:a/b.git",
        "the password is wrong, and the password sha256 too",
        "3 pass, 2 fail: git log --author=ada",
        "PRIMARY KEY (id)",
        "bypass=1 compass=2",
        "<a>password</a>",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("mysql -uroot -ps3cret -e 'x'", "mysql -uroot -p*** -e 'x'"),
        ("mysql -u root -p's3 cret' db; ls -p x", "mysql -u root -p*** db; ls -p x"),
        ("sudo docker exec db mysqldump -ps3cret a > b", "sudo docker exec db mysqldump -p*** a > b"),
        ("redis-cli -h x -a s3cret GET k", "redis-cli -h x -a *** GET k"),
        ("docker login -u u -p s3cret r.io", "docker login -u u -p *** r.io"),
        ("echo s3cret | sudo -S apt update", "echo *** | sudo -S apt update"),
        ("printf %s s3cret |\n gh secret set A", "printf *** *** |\n gh secret set A"),
        ("sudo -S ls <<< 's3cret'", "sudo -S ls <<< ***"),
        ('gh secret set A --body "s3 cret"', 'gh secret set A --body "***"'),
        ("npm config set //r/:_authToken s3cret", "npm config set //r/:_authToken ***"),
        ("npm config set _auth=s3cret", "npm config set _auth=***"),
        ("aws configure set aws_secret_access_key s3cret", "aws configure set aws_secret_access_key ***"),
        ("curl -sb sid=s3cret https://x", "curl -sb sid=*** https://x"),
        ("curl -u s3cret: https://x", "curl -u *** https://x"),
        ("curl -su ada:s3cret https://x", "curl -su ada:*** https://x"),
        ("kubectl create secret generic --from-literal=a=s3cret", "kubectl create secret generic --from-literal=a=***"),
        ("htpasswd -bc f ada s3cret 2>&1 > out", "htpasswd -bc f ada *** 2>&1 > out"),
        ("openssl enc -aes256 -pass pass:s3cret -in f", "openssl enc -aes256 -pass pass:*** -in f"),
        ("mysqladmin -u root password s3cret drop db", "mysqladmin -u root password *** drop db"),
        ("sshpass -p 's3 cret' ssh -p 22 h", "sshpass -p *** ssh -p 22 h"),
        ("sqlplus scott/s3cret@db @f.sql", "sqlplus scott/*** @f.sql"),
        ("smbclient //h/s -U ada%s3cret", "smbclient //h/s -U ada%***"),
        ("vault kv put secret/x any=s3cret", "vault kv put secret/x any=***"),
        ("ssh h 'mysql -ps3cret -e \"x\"'", "ssh h 'mysql -p*** -e \"x\"'"),
        ('{"command": "mysql -ps3cret -e \\"x\\""}', '{"command": "mysql -p*** -e \\"x\\""}'),
        ("mysql -p$(cat f) -e x && mysql -ps3cret", "mysql -p$(cat f) -e x && mysql -p***"),
        ("git push https://x-access-token:s3cret@h/a.git main", "git push https://x-access-token:***@h/a.git main"),
    ],
)  # fmt: skip
def test_what_a_program_takes_for_a_secret_is_hidden(line: str, shown: str) -> None:
    assert redact(line) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "line",
    [
        "docker run -p 8080:80 -u 1000:1000 image",
        "mysql -P 3306 -p db",
        'mysql -p"$PASSWORD" -e x',
        "curl -b cookies.txt -c cookies.txt https://x",
        "echo hello | sudo tee /etc/motd",
        "docker login --help",
        "npm config set registry https://x",
        "kubectl create secret generic x --from-file=f",
        "htpasswd -D f ada",
        "openssl req -newkey rsa:2048 -keyout k.pem",
        "gh issue create --body hello",
    ],
)
def test_the_same_option_of_another_program_stays(line: str) -> None:
    assert redact(line) == line


def test_an_option_and_its_value_are_two_words_of_an_argument_list() -> None:
    assert redact_words(["x", "--password", "two words", "-v"]) == ["x", "--password", "***", "-v"]
    assert redact_words(["curl", "-u", "ada:s3cret"]) == ["curl", "-u", "ada:***"]
    assert redact_words(["redis-cli", "-a", "s3cret", "SET", "a", "b"]) == ["redis-cli", "-a", "***", "SET", "a", "b"]
    assert redact_words(["git", "push", "origin", "main"]) == ["git", "push", "origin", "main"]


def test_a_text_about_a_command_does_not_tell_its_secret() -> None:
    text = "the rule does not know -ps3cret"
    assert redact_beside(text, "", [("mysql", None, "-ps3cret")]) == "the rule does not know -p***"
    assert redact_beside(text, "", [("ls", "-ps3cret")]) == text
    assert redact_beside(text, "X_TOKEN=s3cret; ls -p$X_TOKEN", [("ls", "-ps3cret")]) == "the rule does not know -p***"
    assert redact_beside(text, "X=s3cret; ls -p$X", [("ls", "-ps3cret")]) == text
    assert redact_beside("npm unpublish", "X_TOKEN=unpublish; npm $X_TOKEN", [("npm", "unpublish")]) == "npm unpublish"


def test_of_a_url_not_even_the_name_of_who_asks_is_kept() -> None:
    assert redact_url("https://ada@h.example/a?b=c@d") == "https://***@h.example/a?b=c@d"
    assert redact_url("https://ada:pw@h.example/") == "https://ada:***@h.example/"
    assert redact_url("https://h.example?who=a@b") == "https://h.example?who=a@b"


def test_what_surrounds_a_secret_stays() -> None:
    assert redact("DB_PASSWORD=hunter2 make deploy") == "DB_PASSWORD=*** make deploy"
    assert redact("git push https://ada:pw@host/x main") == "git push https://ada:***@host/x main"
    assert redact('{"token": "abc", "path": "x"}') == '{"token": "***", "path": "x"}'


def test_fields_with_telling_names_are_hidden_whatever_they_hold() -> None:
    shown = for_people({"apiKey": "zzz", "nested": {"Password": ["a"], "max_tokens": 5, "path": "x"}, "token": None})
    assert shown == {"apiKey": "***", "nested": {"Password": "***", "max_tokens": 5, "path": "x"}, "token": None}
    assert not is_sensitive("max_tokens")
    assert for_people({"auth": {"user": "a", "pass": "b"}, "dbPass": "c", "passed": 3}) == {
        "auth": "***", "dbPass": "***", "passed": 3,
    }  # fmt: skip


def test_a_field_that_another_one_names_is_hidden() -> None:
    env = [{"name": "DB_PASSWORD", "value": "zzz"}, {"key": "LANG", "value": "C"}]
    assert for_people({"env": env}) == {"env": [{"name": "DB_PASSWORD", "value": "***"}, env[1]]}


def test_a_list_may_be_a_command() -> None:
    shown = for_people({"argv": ["docker", "login", "-p", "zzz"], "args": ["--token", "zzz", "--token-file", "f"]})
    assert shown == {"argv": ["docker", "login", "-p", "***"], "args": ["--token", "***", "--token-file", "f"]}


def test_long_deep_and_wide_values_are_cut_and_say_so() -> None:
    deep: object = "x"
    for _ in range(500):
        deep = [deep]
    shown = for_people(
        {"long": "é" * 10_000, "deep": deep, "wide": list(range(1000)), "many": {str(i): i for i in range(500)}}
    )
    assert isinstance(shown, dict)
    assert "8,000 more characters" in str(shown["long"])
    assert "936 more" in str(shown["wide"])
    assert "436 more" in str(shown["many"])
    assert len(str(shown["deep"])) < 100


def test_a_secret_that_the_cut_would_split_is_not_shown_in_half() -> None:
    for at in range(LIMIT - 60, LIMIT + 5):
        assert GITHUB[:12] not in shorten("x" * (at - 1) + " " + GITHUB)


def test_redaction_is_idempotent() -> None:
    text = f"Authorization: Bearer abc\npassword=x\n{PEM}\nhttps://u:p@h {AWS}"
    assert redact(redact(text)) == redact(text)


ALPHABET = [
    "password", "=", ":", " ", "'", '"', "sk-", "eyJ", ".", "-", "://", "@", "a", "-----BEGIN ", "PRIVATE KEY-----",
    "?sig=", "&x-key=", "https://", "-----END ", "cookie",
    "Authorization", "token", "--", "\n", "x", "AKIA", "/", "_", "-u ", "bearer ",
]  # fmt: skip


@pytest.mark.parametrize(
    "piece",
    [
        *ALPHABET,
        "a" * 50,
        "eyJa-",
        "sk-sk-",
        "://a:",
        "://a:b@",
        "token" * 3,
        "--a-",
        'password = "',
        "\\",
        "mysql -p'",
        'mysql "',
        'curl -b \\"',
        "npm config set ",
        "( mysql -px",
        "'mysql \"' ",
        "echo x | ",
    ],
)
def test_no_repetition_makes_it_slow(piece: str) -> None:
    text = "password mysql login config " + piece * (64 * 1024 // len(piece))
    started = time.process_time()  # not the wall's: a busy machine must not fail it
    redact(text)
    assert time.process_time() - started < 2


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(ALPHABET) | st.text(string.printable, max_size=8), max_size=60).map("".join))
def test_any_text_is_redacted_without_an_error(text: str) -> None:
    assert isinstance(redact(text), str)
    assert isinstance(for_people({"a": [text]}), dict)
