"""JAAS texts, with the recorded results of Apache Kafka 3.9.2's JaasConfig for the same texts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from server.security.jaas import (
    ControlFlag,
    JaasError,
    LoginModule,
    parse_jaas_config,
    parse_jaas_file,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {}),
        (' username="alice" password="s3cret"', {"username": "alice", "password": "s3cret"}),
        ("\n\tusername = alice\r\n\tpassword\n=\n'it is'\n", {"username": "alice", "password": "it is"}),
        (r' p="a\"b\\c"', {"p": 'a"b\\c'}),
        (r' p="\101\8\477\n\tx"', {"p": "A8'7\n\tx"}),
        (" p=a1.b-c_d$e", {"p": "a1.b-c_d$e"}),
        (" p='ł\"é'", {"p": 'ł"é'}),
        (" p=one p=two", {"p": "two"}),
        (' /* c="d" */ p=a // p=b', {"p": "a"}),
        (' keyTab="/etc/kafka.keytab"', {"keyTab": "/etc/kafka.keytab"}),
        (' user_o\'neil="x"', None),
        (" p=12", None),
        (" p=/etc/kafka.keytab", None),
        (" p=a{b", None),
        (" p", None),
        (" p=", None),
        (' p="unclosed', {"p": "unclosed"}),
    ],
)  # fmt: skip
def test_options_are_read_as_apache_kafka_reads_them(options, expected):
    text = f"{PLAIN} required{options}\n;"
    if expected is None:
        with pytest.raises(JaasError):
            parse_jaas_config(text)
    else:
        module = parse_jaas_config(text)
        assert module.options == expected
        assert (module.module, module.class_name) == (PLAIN, "PlainLoginModule")


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_control_flags_are_read_in_any_case(flag):
    assert parse_jaas_config(f"a.B {flag};").control_flag is ControlFlag(flag.lower())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Login module not specified in JAAS config"),
        ("// nothing", "Login module not specified in JAAS config"),
        ("a.B", "Login module control flag not specified in JAAS config"),
        ("a.B =", "Login module control flag is not available in the JAAS config"),
        ("a.B maybe;", "Invalid login module control flag 'maybe' in JAAS config"),
        ("a.B required", "JAAS config entry not terminated by semi-colon"),
        ("a.B required; c.D required;", "JAAS config property contains 2 login modules, should be 1 module"),
    ],
)  # fmt: skip
def test_wrong_text_is_refused_with_apache_kafkas_message(text, error):
    with pytest.raises(JaasError) as refused:
        parse_jaas_config(text)
    assert str(refused.value) == error


def test_module_that_connects_to_addresses_in_its_options_is_refused():
    with pytest.raises(JaasError, match="JndiLoginModule is not allowed"):
        parse_jaas_config("com.sun.security.auth.module.JndiLoginModule required;")


@pytest.mark.parametrize(
    "text",
    [
        'a.B required username=alice password="hush"hush;',
        "a.B required username=alice password=hu hush;",
        "a.B required username=alice password=hush=hush;",
        "a.B required username=alice password=x;hush hush",
        'a.B required password="hush',
    ],
)
def test_error_in_a_password_does_not_show_it(text):
    with pytest.raises(JaasError) as refused:
        parse_jaas_config(text)
    assert "hush" not in str(refused.value)


def test_repr_shows_no_option():
    module = parse_jaas_config('a.B required user_alice="hush" password=hush;')
    assert repr(module) == str(module) == "LoginModule(B, required, options hidden)"


def test_missing_option_is_named():
    module = parse_jaas_config("a.PlainLoginModule required username=alice;")
    assert module.require("username") == module.get("username") == "alice"
    assert module.get("password", "none") == "none"
    with pytest.raises(JaasError, match="PlainLoginModule has no option password in JAAS config"):
        module.require("password")


@given(st.text())
def test_quoted_value_is_read_back_whatever_it_contains(value):
    escaped = "".join(f"\\{ord(c):03o}" if c in '"\\\n\r' else c for c in value)
    assert parse_jaas_config(f'a.B required p="{escaped}";').options == {"p": value}


WORDS = ["a.B ", "required ", "optional ", "p", "=", "q ", '"x y" ', "'x' ", "'", ";", "\\", "/*"]


@given(st.text("ab ={};\"'/*\\\n,0.-") | st.lists(st.sampled_from(WORDS)).map("".join))
@example("a.B required p=0 q='x'; // the end")
def test_any_text_is_read_or_refused(text):
    try:
        module = parse_jaas_config(text)
    except JaasError as error:
        assert "JAAS" in str(error)
    else:
        assert parse_jaas_config(module.to_text()) == module


def test_long_comments_take_linear_time():
    assert parse_jaas_config("/*a*/" * 50_000 + "a.B required;" + "/*a*/" * 50_000).module == "a.B"


# Files

FILE = """
// what the broker logs in with
KafkaServer {
    org.apache.kafka.common.security.scram.ScramLoginModule required
        username="broker"
        password="hush";
};
"sasl_ssl.KafkaServer" { a.B optional; c.D required; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=kafka password="z" ; };
Empty {};
"""


def test_file_is_read_into_its_sections():
    sections = parse_jaas_file(FILE)
    assert list(sections) == ["KafkaServer", "sasl_ssl.KafkaServer", "Client", "Empty"]
    (scram,) = sections["KafkaServer"]
    assert scram.options == {"username": "broker", "password": "hush"}
    assert [module.class_name for module in sections["sasl_ssl.KafkaServer"]] == ["B", "D"]
    (client,) = sections["Client"]
    assert isinstance(client, LoginModule)
    assert client.class_name == "DigestLoginModule"
    assert sections["Empty"] == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("A { a.B required; }", "line 1: section A is not closed with };"),
        ("A { a.B required;", "line 1: section A is not closed with };"),
        ("A\n{};\nA {};", "line 3: there are several sections named A"),
        ("{};", "line 1: expected the name of a section and {"),
        ("A {\n a.B required p; };", "line 2: Value not specified for the first option in JAAS config, section A"),
        ('A {\n a.B required p="${p}"; };', "line 2: option p in section A names a property of the Java virtual machine"),
    ],
)  # fmt: skip
def test_wrong_file_is_refused_with_its_line(text, error):
    with pytest.raises(JaasError) as refused:
        parse_jaas_file(text)
    assert str(refused.value).startswith(error)
