"""A replica's settings: read at once, wrong ones named, secrets hidden."""

from __future__ import annotations

import pytest

from inference_fleet.settings import FrontendSettings, SettingsError

URL = "postgresql://fleet:hunter22@db:5432/fleet"


def read(**changes: str) -> FrontendSettings:
    environ = {"BLACKSTART_DATABASE_URL": URL}
    environ |= {f"BLACKSTART_{name}": value for name, value in changes.items()}
    return FrontendSettings.from_environ(environ)


def test_the_database_is_all_a_replica_has_to_be_told() -> None:
    settings = read()
    assert settings.listen == ("127.0.0.1", 8080)
    assert settings.advertise_address is None
    assert settings.auth_registration == "approval"
    assert settings.auto_approve_nodes
    assert not settings.expose_route
    assert read().instance_id != settings.instance_id


@pytest.mark.holds("B-4")
def test_an_empty_address_is_present_but_not_dialable_and_a_loopback_one_is_accepted() -> None:
    assert read(ADVERTISE_ADDRESS="").advertise_address == ""
    assert read(ADVERTISE_ADDRESS="127.0.0.1:8080").advertise_address == "127.0.0.1:8080"
    assert read(ADVERTISE_ADDRESS="[::1]:8080").advertise_address == "[::1]:8080"
    for wrong in ("host", "host:0", "host:70000", ":80"):
        with pytest.raises(SettingsError, match="BLACKSTART_ADVERTISE_ADDRESS"):
            read(ADVERTISE_ADDRESS=wrong)


TLS = {"TLS_CERT_FILE": "/etc/fleet/cert.pem", "TLS_KEY_FILE": "/etc/fleet/key.pem"}


def test_an_address_is_announced_as_the_listener_speaks_unless_it_says_itself() -> None:
    assert read(ADVERTISE_ADDRESS="h:1").advertise_address == "h:1", "plain stays what it was"
    assert read(ADVERTISE_ADDRESS="h:1", **TLS).advertise_address == "https://h:1"
    assert read(ADVERTISE_ADDRESS="https://[::1]:1").advertise_address == "https://[::1]:1"
    assert read(ADVERTISE_ADDRESS="http://h:1", **TLS).advertise_address == "h:1"
    for wrong in (
        "https://h",
        "ftp://h:1",
        "https://h:1/x",
        "https://h/x:1",
        "https://:1",
        "https://https://h:1",
    ):
        with pytest.raises(SettingsError, match=f"BLACKSTART_ADVERTISE_ADDRESS={wrong}: "):
            read(ADVERTISE_ADDRESS=wrong)


def test_tls_takes_both_files_or_neither() -> None:
    settings = read(**TLS)
    assert (str(settings.tls_cert_file), str(settings.tls_key_file)) == tuple(TLS.values())
    assert read().tls_cert_file is None
    for given, missing in (("TLS_CERT_FILE", "TLS_KEY_FILE"), ("TLS_KEY_FILE", "TLS_CERT_FILE")):
        with pytest.raises(
            SettingsError, match=f"BLACKSTART_{missing}=: must be set where BLACKSTART_{given}"
        ):
            read(**{given: TLS[given]})


def test_what_a_file_holds_is_not_taken_for_its_path_nor_shown() -> None:
    for name in ("TLS_CERT_FILE", "TLS_KEY_FILE", "PEER_CA_FILE"):
        for held in ("-----BEGIN PRIVATE KEY-----s3cret", "s3cret\ncontent"):
            with pytest.raises(SettingsError, match=rf"BLACKSTART_{name}=\*\*\*: .*path of a file") as caught:
                read(**{**TLS, name: held})
            assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PEER_SERVER_NAME", "no name"),
        ("DATABASE_URL", ""),
        ("DATABASE_URL", "http://fleet:hunter22@db/fleet"),
        ("DATABASE_URL", "postgresql:///fleet"),
        ("DATABASE_URL", "postgresql://fleet:hunter22@db:70000/fleet"),
        ("DATABASE_URL", "postgresql://fleet:hunter22@db:0/fleet"),
        ("DATABASE_URL", "postgresql://fleet:hunter22@db:5432,other:70000/fleet"),
        ("DATABASE_URL", "postgresql://fleet:hunter22@[db/fleet"),
        ("LISTEN", "8080"),
        ("INSTANCE_ID", "x" * 300),
        ("INSTANCE_ID", "a\u202eb"),
        ("AUTH_REGISTRATION", "closed"),
        ("AUTO_APPROVE_NODES", "perhaps"),
        ("TRUSTED_PROXIES", "10.0.0.0/8, nonsense"),
        ("DATA_DIR", "a\0b"),
    ],
)
def test_a_wrong_value_names_its_variable_and_no_secret(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"BLACKSTART_{name}") as caught:
        read(**{name: value})
    assert "hunter22" not in str(caught.value)
    assert "; try: " in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("WEB_PORT", "8443"), ("MODELS_DIR", "/models")])
def test_a_setting_of_serving_nodes_is_refused_by_name_and_not_ignored(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^BLACKSTART_{name}={value}: must be unset") as caught:
        read(**{name: value})
    assert "; try: " in str(caught.value)
    assert read(**{name: ""}).database_url == URL, "the control: set to nothing is not set"


def test_a_database_may_have_several_hosts_or_no_port() -> None:
    for good in (
        "postgresql://db/fleet",
        "postgres://u:p%40w@[::1]:5432,other:1,third/fleet?sslmode=require",
    ):
        assert read(DATABASE_URL=good).database_url == good


def test_secrets_are_not_in_the_printed_settings() -> None:
    shown = repr(read(CLUSTER_SECRET="s3cret-1", REGISTRATION_TOKEN="s3cret-2", AUTH_HMAC_SECRET="s3cret-3"))
    assert "s3cret" not in shown
    assert "hunter22" not in shown


def test_trusted_proxies_are_networks() -> None:
    assert [str(network) for network in read(TRUSTED_PROXIES="10.0.0.0/8, ::1").trusted_proxies] == [
        "10.0.0.0/8",
        "::1/128",
    ]
