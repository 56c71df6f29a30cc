"""Which Postgres a run asked for."""

from __future__ import annotations

import pytest

from blackstart.infra.choice import Provider, parse_choice, redact_url
from blackstart.infra.errors import BAD_INPUT, BadPostgresOption

SECRET = "s3cr3t"


def test_embedded_container_and_a_url_are_choices() -> None:
    assert parse_choice("embedded").provider is Provider.EMBEDDED
    assert parse_choice(" container ").provider is Provider.CONTAINER
    external = parse_choice(f"postgresql://u:{SECRET}@db:5432/x")
    assert external.provider is Provider.EXTERNAL
    assert external.url.endswith("/x")
    assert SECRET not in f"{external} {external!r}"


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("", "names no provider"),
        ("sqlite", "names no provider"),
        ("Embedded", "names no provider"),
        (f"mysql://u:{SECRET}@db/x", "the scheme 'mysql'"),
        (f"postgresql://u:{SECRET}@/x", "names no host"),
        (f"postgresql://u:{SECRET}@db:0/x", "port 0"),
        (f"postgresql://u:{SECRET}@db:70000/x", "port outside"),
        (f"postgresql://u:{SECRET}@db:port/x", "not a URL"),
        (f"postgresql://u:{SECRET}@db/x\x00", "control character"),
        (f"postgresql://u:{SECRET}@[::1/x", "not a URL"),
    ],
)
def test_anything_else_is_bad_input_that_names_the_option_and_shows_no_password(
    option: str, wrong: str
) -> None:
    with pytest.raises(BadPostgresOption, match=wrong) as caught:
        parse_choice(option, thing="--postgres")
    text = str(caught.value)
    assert text.startswith("--postgres=")
    assert "; try: embedded, container, or postgresql://" in text
    assert SECRET not in text
    assert caught.value.exit_code == BAD_INPUT


def test_a_password_is_hidden_in_the_authority_and_in_the_query() -> None:
    assert redact_url(f"postgresql://u:{SECRET}@h:1/d?sslmode=x") == "postgresql://u:***@h:1/d?sslmode=x"
    assert redact_url(f"postgresql://h/d?password={SECRET}&user=u") == "postgresql://h/d?password=***&user=u"
    assert redact_url("postgresql://u@h/d") == "postgresql://u@h/d", "control: nothing to hide"
