"""What a secret looks like in a URL, a header, a command line or a body, and what is no secret."""

from __future__ import annotations

import pytest

from blackstart.core.redact import is_secret_name, redact, redact_argv, redact_value

SECRET = "hunter2-9f8e7d"


@pytest.mark.parametrize(
    "text",
    [
        f"postgres://admin:{SECRET}@127.0.0.1:5432/app",
        f"postgresql+psycopg://admin:{SECRET}@host/app?sslmode=require",
        f"postgres://admin:p@ss:w/{SECRET}@host/app",
        f"could not connect to 'amqp://u:{SECRET}@h'",
        f"Authorization: Bearer {SECRET}",
        f"authorization: {SECRET}",
        f'{{"headers":{{"Authorization":"Bearer {SECRET}"}}}}',
        f"Proxy-Authorization: Basic {SECRET}==",
        f"Cookie: theme=dark; session={SECRET}; other=1",
        f"Set-Cookie: session={SECRET}; HttpOnly",
        f"BLACKSTART_CLUSTER_SECRET={SECRET}",
        f"BLACKSTART_REGISTRATION_TOKEN='{SECRET}'",
        f"PGPASSWORD={SECRET} psql",
        f"host=127.0.0.1 user=u password={SECRET} dbname=app",
        f"https://host/path?token={SECRET}&next=1",
        f'{{"password": "{SECRET}", "name": "x"}}',
        f"{{'api_key': '{SECRET}'}}",
        f"admin_cookie: {SECRET}",
        f"/run/secrets/password: {SECRET}",
        f"/run/secrets/password:{SECRET} is it",
        f"user/password: {SECRET}",
        f"https://host/token: {SECRET}",
        f"/login?token: {SECRET}",
        f"/run/token={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n(cut off",
    ],
)
def test_a_secret_is_not_shown(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "postgres://127.0.0.1:5432/app",
        "http://127.0.0.1:20051/readyz answered 503, http://127.0.0.1:20052/ answered 200",
        "tokens_per_second=20 max_tokens=5",
        "process_key=babbler-0#1 port=20051",
        "BLACKSTART_NODE_CREDENTIAL_FILE=/data/credential",
        "monkey=1 donkey: 2",
        "blackstart: --run-dir=/etc/passwd: is a file, or lies under one; try: --run-dir with a folder",
        "cat: /run/secrets/token: Permission denied",
        "worker-0: presence='connected'; try: a larger budget",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_the_user_and_the_host_of_a_url_stay_readable() -> None:
    assert redact(f"postgres://admin:{SECRET}@h:1/db") == "postgres://admin:***@h:1/db"


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(f"token={SECRET} postgres://a:{SECRET}@h Bearer {SECRET}")
    assert redact(once) == once


def test_the_word_after_a_secret_option_goes_and_the_next_option_stays() -> None:
    argv = ["up", "--token", SECRET, "--api-key", "--json", f"--password={SECRET}", "--seed", "7"]
    assert redact_argv(argv) == [
        *("up", "--token", "***", "--api-key", "--json", "--password=***", "--seed", "7")
    ]


def test_nested_data_hides_texts_under_secret_names_and_keeps_numbers() -> None:
    data = {
        "password": SECRET,
        "usage": {"total_tokens": 12, "tokens": 3},
        "argv": ["--token", SECRET],
        "urls": [{"url": f"postgres://a:{SECRET}@h"}],
        "api_key": "",
    }
    assert redact_value(data) == {
        "password": "***",
        "usage": {"total_tokens": 12, "tokens": 3},
        "argv": ["--token", "***"],
        "urls": [{"url": "postgres://a:***@h"}],
        "api_key": "",
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("BLACKSTART_AUTH_HMAC_SECRET", True),
        ("--api-key", True),
        ("session_id", True),
        ("process_key", False),
        ("credential_sha256", False),
        ("node", False),
    ],
)
def test_a_name_is_secret_by_its_words(name: str, *, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_a_long_text_costs_no_more_than_its_length() -> None:
    """A rule that starts anew at every letter would take minutes for these."""
    for text in ("x" * 200_000, "x-" * 100_000, "a=" * 100_000, "//:" * 50_000):
        assert redact(text) == text
