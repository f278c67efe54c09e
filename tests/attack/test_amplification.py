"""Small requests that ask for the same large answer many times."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from kwire.api import ApiKey

from .conftest import Target

pytestmark = pytest.mark.e2e

OFTEN = 1000


@pytest.mark.parametrize(
    ("api", "version", "values", "rows"),
    [
        (
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {
                "resources": [{"resource_type": 4, "resource_name": "1"}] * OFTEN,
                "include_synonyms": True,
                "include_documentation": True,
            },
            "results",
        ),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"] * OFTEN}, "groups"),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}] * OFTEN}, "groups"),
        (ApiKey.METADATA, 9, {"topics": [{"name": "t1"}] * OFTEN}, "topics"),
    ],
)
def test_what_is_asked_many_times_is_answered_once(
    target: Target, api: ApiKey, version: int, values: dict[str, Any], rows: str
) -> None:
    with closing(target.client()) as client:
        answer: Any = client.call(api, version, values)
        assert len(answer[rows]) == 1


def test_offset_is_told_once(target: Target) -> None:
    with closing(target.client()) as client:
        client.call(ApiKey.FIND_COORDINATOR, 0, {"key": "g"})
        topics = [{"name": "t1", "partition_indexes": [0] * OFTEN}] * 2
        answer: Any = client.call(ApiKey.OFFSET_FETCH, 1, {"group_id": "g", "topics": topics})
        assert [len(topic["partitions"]) for topic in answer["topics"]] == [1]
