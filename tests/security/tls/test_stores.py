"""Keys and certificates from the ssl.* settings of a listener, and the messages about unusable ones."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from kwire.testing.certificates import Authority
from server.config import BrokerConfig, ConfigError
from server.security.tls import contexts
from server.security.tls.contexts import Credentials, load_credentials
from tests.support.certificates import encrypted_pem, pkcs12

PASSWORD = "changeit"


def load(settings: dict[str, str], *, login: bool = False) -> Credentials:
    listener = BrokerConfig(settings).listener("SSL")
    return load_credentials(listener, lambda path: Path(path).read_bytes(), login=login)


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(settings)
    return caught.value.explain()


def inline(authority: Authority, **others: str) -> dict[str, str]:
    """The settings of a listener with PEM in the settings; `_` in names of others stands for a dot."""
    issued = authority.issue("CN=broker")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem,
        "ssl.keystore.certificate.chain": issued.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        **{name.replace("_", "."): text for name, text in others.items()},
    }


def shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> str:
    """Make a handshake in memory, and return the version of TLS. Errors: ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return str(ends[1].version())


# -- what can be used


def test_pem_in_the_settings_is_used(authority: Authority) -> None:
    made = load(inline(authority))
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


def test_pem_file_with_an_encrypted_key_is_used(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "broker.pem"
    store.write_text(encrypted_pem(authority.issue("CN=broker"), PASSWORD))
    made = load(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.write(tmp_path / "ca.pem")),
        }
    )
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


@pytest.mark.parametrize("kind", ["PKCS12", "pkcs12", "JKS", None])
def test_pkcs12_file_is_used_whatever_the_type_says_of_it(
    authority: Authority, tmp_path: Path, kind: str | None
) -> None:
    """Java also reads it if the type says JKS, which is the default."""
    store = tmp_path / "broker.p12"
    store.write_bytes(pkcs12(authority.issue("CN=broker"), authority, PASSWORD))
    settings = inline(authority)
    del settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    del settings["ssl.keystore.type"]
    settings |= {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    if kind is not None:
        settings["ssl.keystore.type"] = kind
    made = load(settings)
    assert made.identity is not None
    assert [each.subject.rfc4514_string() for each in made.identity.chain] == [
        "CN=broker",
        "CN=kwire.testing authority",
    ]
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


def test_truststore_may_be_pkcs12(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "trusted.p12"
    store.write_bytes(pkcs12(authority.issue("CN=x"), authority, PASSWORD))
    settings = inline(authority)
    del settings["ssl.truststore.certificates"], settings["ssl.truststore.type"]
    settings |= {"ssl.truststore.location": str(store), "ssl.truststore.password": PASSWORD}
    made = load(settings)
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


def test_system_without_files_in_memory_gets_a_file_for_a_moment(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(contexts.os, "memfd_create", raising=False)
    made = load(inline(authority))
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


# -- versions, suites, clients


def test_enabled_protocols_bound_the_version(authority: Authority) -> None:
    old = load(inline(authority, ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1"))
    new = load(inline(authority, ssl_enabled_protocols="TLSv1.3"))
    both = load(inline(authority))
    assert shakes_hands(old.server, both.client) == "TLSv1.2"
    assert shakes_hands(new.server, both.client) == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        shakes_hands(new.server, old.client)


def test_suites_are_named_as_in_java(authority: Authority) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    made = load(inline(authority, ssl_cipher_suites=suite))
    assert made.server.maximum_version == ssl.TLSVersion.TLSv1_2
    names = {each["name"] for each in made.server.get_ciphers() if each["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert shakes_hands(made.server, load(inline(authority)).client) == "TLSv1.2"


@pytest.mark.parametrize(
    ("auth", "login", "own", "expected"),
    [
        ("none", False, None, ssl.CERT_NONE),
        ("requested", False, None, ssl.CERT_OPTIONAL),
        ("required", False, None, ssl.CERT_REQUIRED),
        ("required", True, None, ssl.CERT_NONE),  # only a listener's own value counts there
        ("none", True, "required", ssl.CERT_REQUIRED),
    ],
)
def test_client_auth_is_asked_for_as_in_kafka(
    authority: Authority, auth: str, login: bool, own: str | None, expected: ssl.VerifyMode
) -> None:
    settings = inline(authority, ssl_client_auth=auth)
    if own is not None:
        settings["listener.name.ssl.ssl.client.auth"] = own
    assert load(settings, login=login).server.verify_mode == expected


def test_host_name_is_checked_unless_that_is_switched_off(authority: Authority) -> None:
    made = load(inline(authority))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shakes_hands(made.server, made.client, "other.example")
    off = load(inline(authority, ssl_endpoint_identification_algorithm=""))
    assert shakes_hands(off.server, off.client, "other.example") == "TLSv1.3"


def test_certificate_in_the_truststore_is_trusted_without_its_issuer(authority: Authority) -> None:
    settings = inline(authority)
    settings["ssl.truststore.certificates"] = settings["ssl.keystore.certificate.chain"]
    made = load(settings)
    assert shakes_hands(made.server, made.client) == "TLSv1.3"


@pytest.mark.parametrize("lie", ["other authority", "expired"])
def test_certificate_that_is_not_trusted_fails(authority: Authority, lie: str) -> None:
    issuer = Authority("Other") if lie == "other authority" else authority
    issued = issuer.issue("CN=broker", valid_for=timedelta(days=-1 if lie == "expired" else 1))
    settings = inline(authority)
    settings["ssl.keystore.key"] = issued.key_pem
    settings["ssl.keystore.certificate.chain"] = issued.certificate_pem
    made = load(settings)
    with pytest.raises(ssl.SSLCertVerificationError):
        shakes_hands(made.server, made.client)


# -- what is refused


def test_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed and so on")
    said = refusal({"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD})
    assert said.startswith(f"ssl.keystore.location={store}: this is a JKS file")
    assert f"-srckeystore {store} -destkeystore {store.with_suffix('.p12')}" in said


@pytest.mark.jvm
@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool")
def test_command_that_converts_works(tmp_path: Path, authority: Authority) -> None:
    store = tmp_path / "broker.jks"
    words = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-storetype", "JKS"]
    secrets = ["-storepass", PASSWORD, "-keypass", PASSWORD]
    make = ["keytool", *words, *secrets, "-keystore", str(store)]
    subprocess.run(make, check=True, capture_output=True)
    settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    command = refusal(settings).partition("Convert it: ")[2].split()
    secrets = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
    subprocess.run([*command, *secrets], check=True, capture_output=True)
    converted = load(settings | {"ssl.keystore.location": str(store.with_suffix(".p12"))})
    assert converted.own is not None
    assert converted.own.subject.rfc4514_string() == "CN=broker"


def test_wrong_password_is_said_to_be_wrong_and_not_shown(
    authority: Authority, tmp_path: Path
) -> None:
    store = tmp_path / "broker.p12"
    store.write_bytes(pkcs12(authority.issue("CN=broker"), authority, PASSWORD))
    said = refusal({"ssl.keystore.location": str(store), "ssl.keystore.password": "geheim"})
    assert said.startswith("ssl.keystore.password=[hidden]: does not open the file")
    store.write_text(encrypted_pem(authority.issue("CN=broker"), PASSWORD))
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    said += refusal(pem | {"ssl.key.password": "geheim"})
    assert "ssl.key.password=[hidden]: does not open the private key" in said
    assert "geheim" not in said
    assert "the private key is encrypted: set ssl.key.password" in refusal(pem)


def test_key_of_another_certificate_is_refused(authority: Authority) -> None:
    settings = inline(authority)
    settings["ssl.keystore.key"] = authority.issue("CN=other").key_pem
    said = refusal(settings)
    assert "the private key does not belong to the first certificate (CN=broker)" in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ssl.keystore.key": None}, "private key is not specified"),
        ({"ssl.keystore.certificate.chain": None}, "certificate chain is not specified"),
        ({"ssl.keystore.location": "/x"}, "Both SSL key store location and separate private key"),
        ({"ssl.truststore.location": "/x"}, "Both SSL trust store location and separate trust"),
        ({"ssl.keystore.password": "x"}, "cannot be specified with PEM format"),
        ({"ssl.truststore.password": "x"}, "cannot be specified for PEM format"),
        ({"ssl.keystore.type": "PKCS12"}, "ssl.keystore.key needs ssl.keystore.type=PEM"),
        ({"ssl.truststore.type": None}, "ssl.truststore.certificates needs"),
        ({"ssl.keystore.type": "BCFKS"}, "kwire does not read BCFKS; allowed: PKCS12, PEM"),
        ({"ssl.keystore.key": "rubbish"}, "there is no private key"),
        ({"ssl.keystore.certificate.chain": "rubbish"}, "there is no certificate"),
        ({"ssl.engine.factory.class": "a.B"}, "kwire cannot run Java classes"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "no version is left"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv9"}, "TLSv9 is not supported"),
        ({"ssl.cipher.suites": "TLS_ROT13"}, "TLS_ROT13 is not a cipher suite"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "add TLS_AES_256_GCM_SHA384, TLS_CHACHA20"),
        ({"ssl.cipher.suites": "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"}, "negotiate none of these"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "allowed: https or empty"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "Invalid rule: `RULE:x`"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused_by_key(
    authority: Authority, changes: dict[str, str | None], expected: str
) -> None:
    merged = inline(authority) | changes
    settings = {name: text for name, text in merged.items() if text is not None}
    said = refusal(settings)
    assert expected in said
    assert said.startswith("ssl.")
    assert "PRIVATE" not in said.replace("BEGIN PRIVATE KEY", "")


def test_file_of_another_kind_is_named(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": "x"}
    assert "cannot be read: No such file or directory" in refusal(settings)
    authority.issue("CN=broker").write(store)
    assert "this is a PEM file: set ssl.keystore.type=PEM" in refusal(settings)
    store.write_bytes(pkcs12(authority.issue("CN=broker"), authority, PASSWORD))
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    assert "this is a PKCS12 file, but ssl.keystore.type is PEM" in refusal(pem)
    store.write_bytes(b"rubbish")
    assert "this is not a PKCS12 file" in refusal(settings)
    del settings["ssl.keystore.password"]
    assert "key store password is not specified" in refusal(settings)
    assert "needs a private key and a certificate" in refusal({})
