"""The declarations agree with Apache Kafka's own definitions, version by version."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.api import ApiKey, request_class, response_class
from kwire.errors import ErrorCode
from kwire.header import request_header_version, response_header_version
from kwire.schema import ABSENT, Field, Schema, VersionRange, schema_of
from kwire.types import Array, Fixed, Sized
from tests.golden.json_form import camel_case
from tests.golden.recorded import read_json
from tests.support.catalogue import all_messages, variants

ZERO = {"bool": False, "string": "", "float64": 0.0, "bytes": b"", "records": b""}

#: Fields whose definition says null but for which Kafka's generated class has an empty list.
EMPTY_NOT_NULL = {
    "ConsumerGroupCurrentMemberAssignmentValue AssignmentEpochs",
    "StreamsGroupCurrentMemberAssignmentValue AssignmentEpochs",
    "StreamsGroupMetadataValue LastAssignmentConfigs",
}


def stated_range(text: str) -> VersionRange:
    return VersionRange.parse(text)


class Definition:
    """A message definition of schema.json, or of the release a variant is of."""

    def __init__(self, entry: dict[str, Any], source: dict[str, Any] | None = None) -> None:
        source = source or entry
        self.name = entry["name"]
        self.flexible = stated_range(entry["flexibleVersions"])
        self.fields = source["fields"]
        self.common = {each["name"]: each["fields"] for each in source.get("commonStructs", [])}

    def layout(self, version: int, fields: list[dict[str, Any]] | None = None) -> list[Any]:
        """The fields in a version, in order, as comparable rows."""
        return [
            self.row(field, version)
            for field in (self.fields if fields is None else fields)
            if version in stated_range(field["versions"])
        ]

    def row(self, field: dict[str, Any], version: int) -> tuple[Any, ...]:
        element = field["type"].removeprefix("[]")
        inner = field.get("fields") or self.common.get(element)
        flexible = stated_range(field["flexibleVersions"]) if "flexibleVersions" in field else None
        tagged = "tag" in field and version in stated_range(field["taggedVersions"])
        return (
            field["name"][0].lower() + field["name"][1:],
            ("[]" if field["type"].startswith("[]") else "")
            + ("struct" if inner is not None else element),
            version in stated_range(field.get("nullableVersions", "none")),
            field["tag"] if tagged else None,
            version in (self.flexible if flexible is None else flexible),
            self.default(field, element, inner, tagged),
            field.get("ignorable") in (True, "true"),
            self.layout(version, inner) if inner is not None else None,
        )

    def default(self, field: dict[str, Any], element: str, inner: Any, tagged: bool) -> object:
        if field["type"].startswith("[]"):
            if f"{self.name} {field['name']}" in EMPTY_NOT_NULL:
                return []
            return field.get("default", [])
        if inner is not None:
            # kwire: a tagged struct that is not sent is None, instead of a struct of defaults.
            if tagged and "nullableVersions" in field:
                return "struct"  # null is sent; recorded from Apache Kafka 4.3.0
            return None if tagged or "default" in field else "struct"
        if element == "uuid":
            return bytes(16)
        if element == "records" and "nullableVersions" in field:
            return None  # Kafka's generator: records begin as null
        return field.get("default", ZERO.get(element, 0))


def declared_layout(schema: Schema, fields: tuple[Field, ...], version: int) -> list[Any]:
    """As Definition.layout, from a declaration."""
    return [declared_row(schema, each, version) for each in fields if version in each.versions]


def declared_row(schema: Schema, field: Field, version: int) -> tuple[Any, ...]:
    element = field.type.element if isinstance(field.type, Array) else field.type
    is_struct = not isinstance(element, Fixed | Sized | Array)
    flexible = schema.flexible if field.flexible is None else field.flexible
    tagged = version in field.tagged
    default: object = field.default
    if default is ABSENT:
        default = field.make_default()
        if field.is_struct and not field.none_is_absent:
            default = "struct"
    return (
        camel_case(field.name),
        ("[]" if isinstance(field.type, Array) else "") + ("struct" if is_struct else str(element)),
        version in field.nullable,
        field.tag if tagged else None,
        version in flexible,
        default,
        field.ignorable,
        declared_layout(schema, schema_of(element).fields, version)
        if isinstance(element, type)
        else None,
    )


def entries() -> list[dict[str, Any]]:
    schema = read_json("schema.json")
    return [*schema["messages"], *schema["headers"], *schema["records"]]


def compare(definition: Definition, cls: type, versions: VersionRange) -> None:
    schema = schema_of(cls)
    for version in range(versions.lowest, versions.highest + 1):
        expected = definition.layout(version)
        actual = declared_layout(schema, schema.fields, version)
        assert expected == actual, f"{definition.name} v{version}"


def test_every_message_is_declared_as_kafka_defines_it() -> None:
    found = all_messages()
    defined = entries()
    assert {entry["name"] for entry in defined} == set(found)
    for entry in defined:
        schema = schema_of(found[entry["name"]])
        versions = stated_range(entry["validVersions"])
        assert str(schema.versions) == str(versions), entry["name"]
        assert str(schema.flexible) == str(stated_range(entry["flexibleVersions"])), entry["name"]
        assert schema.kind == entry["type"]
        assert schema.api_key == entry.get("apiKey"), entry["name"]
        if entry["name"] != "ShareGroupPartitionMetadataValue":  # 3.9.2 states it on the key only
            assert schema.key_type == entry.get("keyType"), entry["name"]
        compare(Definition(entry), found[entry["name"]], versions)


def test_variants_are_what_3_9_2_defines_differently() -> None:
    incompatible = {
        entry["name"]: entry
        for entry in entries()
        if entry.get("differs", {}).get("kind") == "incompatible bytes"
    }
    assert set(incompatible) == set(variants())
    for name, entry in incompatible.items():
        differs = entry["differs"]
        versions = VersionRange(min(differs["versions"]), max(differs["versions"]))
        assert str(schema_of(variants()[name]).versions) == str(versions)
        compare(Definition(entry, differs), variants()[name], versions)


def test_header_versions_are_those_of_kafka() -> None:
    for key, kinds in read_json("schema.json")["headerVersions"].items():
        for kind, of in (
            ("request", request_header_version),
            ("response", response_header_version),
        ):
            cls = (request_class if kind == "request" else response_class)(int(key))
            for version in range(schema_of(cls).versions.highest + 1):
                expected = [header for first, header in kinds[kind] if first <= version][-1]
                assert expected == of(int(key), version), (key, kind, version)


def test_api_keys_are_those_of_kafka() -> None:
    apis = read_json("api_versions.json")["apis"]
    names = {
        api["apiKey"]: api["enumName"] for release in ("3.9.2", "4.3.0") for api in apis[release]
    }
    assert names == {key.value: key.name for key in ApiKey}


def test_error_codes_are_those_of_kafka() -> None:
    stated = {error["code"]: error for error in read_json("errors.json")}
    assert {code: error["name"] for code, error in stated.items()} == {
        code.value: code.name for code in ErrorCode
    }
    for code in ErrorCode:
        assert code.retriable == stated[code]["retriable"], code


@pytest.mark.parametrize("cls", all_messages().values(), ids=lambda cls: cls.__name__)
def test_api_key_leads_to_its_messages(cls: type) -> None:
    schema = schema_of(cls)
    if schema.kind == "request" and schema.api_key is not None:
        assert request_class(schema.api_key) is cls
    elif schema.kind == "response" and schema.api_key is not None:
        assert response_class(schema.api_key) is cls


def test_repr_hides_what_proves_who_somebody_is():
    from kwire.messages.sasl_authenticate import SaslAuthenticateRequest

    assert (
        repr(SaslAuthenticateRequest(auth_bytes=b"hush"))
        == "SaslAuthenticateRequest(auth_bytes=[hidden])"
    )
