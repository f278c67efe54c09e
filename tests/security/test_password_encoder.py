"""Encoded passwords. Apache Kafka 3.9.2's PasswordEncoder wrote kafka_3_9_2_passwords.json, and also decoded this
encoder's results with each cipher, hash and key length.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.password_encoder import (
    CIPHERS,
    KEY_BITS,
    KEY_FACTORIES,
    Encoding,
    PasswordEncoder,
    PasswordError,
)

RECORDED = json.loads(Path(__file__).with_name("kafka_3_9_2_passwords.json").read_text("utf-8"))
SECRET: str = RECORDED["secret"]
QUICK = Encoding(iterations=1)


def test_passwords_of_apache_kafka_are_decoded_whatever_encoding_is_configured():
    encoder = PasswordEncoder(SECRET, QUICK)
    assert {row["password"] for row in RECORDED["encoded"]} == {"abc", "trüst 😀", ""}
    for row in RECORDED["encoded"]:
        assert encoder.decode(row["encoded"]) == row["password"]


def test_encoded_password_has_the_fields_that_apache_kafka_writes():
    def fields(encoded: str) -> dict[str, str]:
        return dict(part.rsplit(":", 1) for part in encoded.split(","))

    varying = {"salt", "initializationVector", "encryptedPassword"}
    for row in RECORDED["encoded"]:
        theirs = fields(row["encoded"])
        encoding = Encoding(
            theirs["cipherAlgorithm"],
            theirs["keyFactoryAlgorithm"],
            int(theirs["keyLength"]),
            int(theirs["iterations"]),
        )
        ours = fields(PasswordEncoder(SECRET, encoding).encode(row["password"]))
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            if name in varying:
                assert len(value) == len(theirs[name])
            else:
                assert value == theirs[name]


@given(
    st.text(),
    st.text(min_size=1),
    st.sampled_from(CIPHERS),
    st.sampled_from(KEY_FACTORIES),
    st.sampled_from(KEY_BITS),
)
def test_encoded_password_is_decoded(password, secret, cipher, key_factory, bits):
    encoder = PasswordEncoder(secret, Encoding(cipher, key_factory, bits, 1))
    encoded = encoder.encode(password)
    assert encoder.decode(encoded) == password
    assert encoder.encode(password) != encoded


@pytest.mark.parametrize("cipher", CIPHERS)
def test_another_secret_is_noticed(cipher):
    # With CBC, about one wrong key in 256 leaves a valid padding; then the length or UTF-8 gives it away.
    encoded = [
        PasswordEncoder("right", Encoding(cipher, iterations=1)).encode("abc") for _ in range(400)
    ]
    wrong = PasswordEncoder("wrong", QUICK)
    for each in encoded:
        with pytest.raises(PasswordError, match="it was encoded with another secret"):
            wrong.decode(each)


def test_what_is_no_encoded_password_is_refused_without_being_shown():
    encoder = PasswordEncoder(SECRET, QUICK)
    good = encoder.encode("abc")
    for wrong, reason in [
        ("hush", "not an encoded password"),
        ("", "not an encoded password"),
        (good.replace("keyLength:128", "keyLength:hush"), "not a number"),
        (good.replace("keyLength:128", "keyLength:129"), "not of AES"),
        (good.replace("iterations:1", "iterations:999999999"), "more than 200000 iterations"),
        (good.replace("iterations:1", "iterations:0"), "iterations"),
        (good.replace("encryptedPassword:", "encryptedPassword:!"), "not base64"),
        (good.replace("initializationVector:", "initializationVector:AAAA"), "another secret"),
        (good.replace("passwordLength:3", "passwordLength:4"), "another secret"),
        (RECORDED["with_another_cipher"], "a cipher that kwire lacks"),
    ]:
        with pytest.raises(PasswordError, match=reason) as refused:
            encoder.decode(wrong)
        assert "hush" not in str(refused.value)


def test_repr_hides_the_secret():
    assert repr(PasswordEncoder("hush")) == "PasswordEncoder(secret hidden)"
