"""The derived pages agree with the code and are complete."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path

import pytest

from docs.generate import (
    ABSENCES,
    ADDITIONS,
    CEILINGS,
    DEFAULTS_THAT_MEAN_SOMETHING_ELSE,
    FEATURE_ABSENCES,
    FEATURES_OF_4_3,
    HERE,
    NEWER_DEFAULTS,
    NEWER_VERSIONS,
    PAGES,
    READ_AT_START,
    advertised,
    api_name,
    handler_omissions,
    main,
    not_served,
    render,
    verbs,
    versions_not_served,
)
from kwire.api import ApiKey
from server.__main__ import COMMANDS, make_parser
from server.config.group_keys import GROUP
from server.config.inert_keys import NEWER_NAMES
from server.config.tables import BROKER, QUOTA, TOPIC
from server.handlers.ceilings import CEILING_3_9, CEILING_4_3, Ceiling
from server.handlers.registry import HandlerTable
from server.handlers.table import HANDLERS
from tests.golden.recorded import read_json


def page(name: str) -> str:
    return (HERE / name).read_text()


def first_cells(text: str, column: int = 0) -> set[str]:
    """The cells of one column of every table row in a page, without backticks."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {row[column].strip().strip("`") for row in rows}


@pytest.mark.parametrize("name", PAGES)
def test_derived_page_is_up_to_date(name: str) -> None:
    assert page(name) == render(name), "run `make docs`"


def test_stale_page_is_named_and_only_written_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.generate.HERE", tmp_path)
    monkeypatch.setattr("docs.generate.PAGES", {"new.md": lambda: "text"})
    assert main(check=True) == 1
    assert "docs/new.md: out of date" in capsys.readouterr().out
    assert not (tmp_path / "new.md").exists()
    assert main(check=False) == 0
    assert (tmp_path / "new.md").read_text().endswith("text\n")
    assert main(check=True) == 0


# -- apis.md


def test_every_api_of_either_release_has_a_row() -> None:
    assert {api_name(key) for key in advertised()} <= first_cells(page("apis.md"), 1)


def test_every_api_that_the_library_knows_is_named() -> None:
    text = page("apis.md")
    assert [key for key in ApiKey if not re.search(rf"\b{api_name(key)}\b", text)] == []


def test_every_api_that_is_not_served_has_a_reason_and_no_other() -> None:
    named = [name for absence in ABSENCES for name in absence.apis.split()]
    assert sorted(named) == sorted(api_name(key) for key in not_served())
    assert all(absence.reason for absence in ABSENCES)


@pytest.mark.parametrize(
    ("broker", "ceiling"),
    [("3.9.2-zk-broker", CEILING_3_9), ("4.3.0-kraft-broker", CEILING_4_3)],
)
def test_versions_compared_are_those_that_a_broker_of_the_release_advertises(
    broker: str, ceiling: Ceiling
) -> None:
    """Neither recorded broker had a plug-in that takes clients' metrics."""
    recorded = read_json("api_versions.json")["advertised"][broker]["apiKeys"]
    served = {key: (low, high) for key, _, low, high in recorded}
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert {key: each for key, each in ceiling.ranges.items() if key not in telemetry} == served


def test_every_version_that_is_not_served_is_explained() -> None:
    missing = {
        (ApiKey(key), version)
        for ceiling in CEILINGS
        for key, version in versions_not_served(HandlerTable(HANDLERS, ceiling), ceiling)
    }
    assert missing == set(NEWER_VERSIONS)


def test_each_difference_from_what_apache_kafka_4_3_advertises_is_argued() -> None:
    """Version by version, against the recorded answer to ApiVersions; older versions may be served too."""
    recorded = read_json("api_versions.json")["advertised"]["4.3.0-kraft-broker"]["apiKeys"]
    theirs = {(key, version) for key, _, low, high in recorded for version in range(low, high + 1)}
    served = HandlerTable(HANDLERS, CEILING_4_3).ranges
    ours = {
        (key, version)
        for key, row in served.items()
        for version in range(row.min_version, row.max_version + 1)
    }
    absent = {name for absence in ABSENCES for name in absence.apis.split()}
    argued = {each for each in theirs if api_name(each[0]) in absent} | set(NEWER_VERSIONS)
    assert theirs - ours == theirs & argued
    newest = {key: high for key, _, _, high in recorded}
    newer = {api_name(key) for key, version in ours if version > newest.get(key, -1)}
    assert newer == set(ADDITIONS)


def test_each_feature_that_apache_kafka_4_3_has_is_there_or_argued() -> None:
    responses = read_json("api_versions.json")["advertised"]["4.3.0-kraft-broker"]["responses"]
    recorded = {
        row["name"]: (row["min"], row["max"]) for row in responses["v4"]["supportedFeatures"]
    }
    assert recorded == FEATURES_OF_4_3
    assert set(recorded) - set(CEILING_4_3.features) == set(FEATURE_ABSENCES)
    assert CEILING_4_3.features.items() <= recorded.items()


def test_every_omitted_paragraph_of_a_handler_is_found() -> None:
    handlers = HERE.parent / "server" / "handlers"
    omitting = {path.name for path in handlers.glob("*.py") if "\nOmitted: " in path.read_text()}
    found = handler_omissions()
    assert omitting - set(found) <= {"groups.py"}, "whose paragraph says: nothing"
    assert all(text.endswith(".") for text in found.values())


# -- configs.md


def test_every_config_key_has_a_row() -> None:
    named = first_cells(page("configs.md"))
    assert {*BROKER, *TOPIC, *QUOTA, *GROUP} <= named


def test_every_newer_config_key_is_named() -> None:
    text = page("configs.md")
    assert [name for name in sorted(NEWER_NAMES) if f"`{name}`" not in text] == []


def test_keys_with_notes_of_their_own_have_an_effect() -> None:
    noted = {*DEFAULTS_THAT_MEAN_SOMETHING_ELSE, *READ_AT_START, *NEWER_DEFAULTS}
    keys = {**TOPIC, **BROKER}
    assert [name for name in sorted(noted) if not keys[name].used] == []


def test_newer_defaults_are_those_that_differ_in_4_3() -> None:
    reference = read_json("configs.json")["4.3.0"]
    differing = {}
    for owner, keys in (("broker", BROKER), ("topic", TOPIC)):
        for row in reference[owner]:
            key = keys.get(row["name"])
            # node.id is as unset there as -1 is here.
            if key is None or not key.used or key.name == "node.id":
                continue
            # An empty list is as unset as no list.
            if (row.get("default") or None) != (key.default or None):
                differing[key.name] = row.get("default")
    assert differing == NEWER_DEFAULTS


# -- commands.md


def sections(text: str) -> dict[str, str]:
    """Heading -> the text below it."""
    parts = re.split(r"^#+ (kwire .*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def missing_flags(parser: ArgumentParser, section: str) -> list[str]:
    flags = [flag for action in parser._actions for flag in action.option_strings]
    wanted = [flag for flag in flags if flag not in ("-h", "--help")]
    return [flag for flag in wanted if not re.search(rf"[` ]{flag}[`, ]", section)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_flag_is_named(command: str) -> None:
    found = sections(page("commands.md"))
    parser = dict(verbs(make_parser(command)))[command]
    assert missing_flags(parser, found[f"kwire {command}"]) == []
    for verb, below in verbs(parser):
        assert missing_flags(below, found[f"kwire {command} {verb}"]) == []
