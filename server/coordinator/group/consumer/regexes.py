"""Regular expressions that members subscribe to: when they are checked and resolved.

They are matched against the names of all topics outside the request, for all expressions of a group together, so that
one change causes one rebalance. Source: GroupMetadataManager.maybeUpdateRegularExpressions,
handleRegularExpressionsResult, TopicRegexResolver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

from kwire.errors import ErrorCode

from ...common.pattern import InvalidPattern, Pattern
from ...common.result import Result
from ..modern.context import GroupClient, GroupContext
from ..modern.refusal import GroupRefusal
from .draft import ConsumerDraft, ResolveRegexes
from .group import ConsumerGroup, ResolvedRegex, Subscribers, resolved_bytes
from .member import ConsumerGroupMember
from .records import EpochRecord, RegexRecord

#: The minimum interval between two resolutions of a group's expressions.
MIN_INTERVAL_MS = 10_000

#: The maximum length of an expression: topic names are much shorter, and the machine stores all expressions.
MAX_CHARACTERS = 8_000

#: The maximum number of Unicode classes (`\pL`) in an expression: RE2 needs up to 0.3 ms for each, even if it then
#: finds the expression too large.
MAX_UNICODE_CLASSES = 100


class RegexChange(Enum):
    """Whether a request changes a member's expression, and whether the matches of the new one are known."""

    NONE = 0
    CHANGED = 1
    RESOLVED = 2


def update_regexes(
    context: GroupContext,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    client: GroupClient,
    draft: ConsumerDraft,
) -> RegexChange:
    """Check and store a member's expression, and have the group's expressions resolved if that is due.

    Errors: INVALID_REGULAR_EXPRESSION; COORDINATOR_LOAD_IN_PROGRESS if there was no memory for what they match.
    """
    before, after = old.subscribed_topic_regex, new.subscribed_topic_regex
    if after and context.now_ms < group.refused_until_ms <= context.now_ms + MIN_INTERVAL_MS:
        raise GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    change = RegexChange.NONE
    refresh = False
    if before != after:
        change = RegexChange.CHANGED
        if before and group.regexes[before] == 1:
            draft.write(RegexRecord(group.group_id, before, None))
        if after:
            if not group.regexes[after]:
                check_regex(after)
                refresh = True
            elif after in group.resolved:
                change = RegexChange.RESOLVED
        elif before:
            change = RegexChange.RESOLVED
    if not refresh and not group.regexes:
        return change
    if group.is_resolving:
        return change
    last = next(iter(group.resolved.values()), None)
    last_ms = 0 if last is None else max(last.timestamp_ms, group.resolved_ms)
    if last is not None and context.now_ms <= last_ms + MIN_INTERVAL_MS:
        return change
    regexes = Counter(group.regexes)
    if before:
        regexes[before] -= 1
    if after:
        regexes[after] += 1
    wanted = tuple(regex for regex, count in regexes.items() if count > 0)
    refresh = (
        refresh
        or len(wanted) != len(group.resolved)
        or group.resolved_generation < context.hashes.generation(context.image)
        or last is None
        or context.now_ms > last_ms + context.config.consumer_regex_refresh_interval_ms
    )
    if refresh and wanted:
        draft.effects.append(ResolveRegexes(group.group_id, wanted, client.may_describe))
    return change


def check_regex(regex: str) -> None:
    """Refuse an expression that RE2 does not accept.

    Errors: INVALID_REGULAR_EXPRESSION.
    """
    try:
        if len(regex) > MAX_CHARACTERS:
            raise InvalidPattern(f"longer than {MAX_CHARACTERS} characters")
        if regex.count(r"\p") + regex.count(r"\P") > MAX_UNICODE_CLASSES:
            raise InvalidPattern(f"more than {MAX_UNICODE_CLASSES} Unicode classes")
        Pattern(regex)
    except InvalidPattern as error:
        raise GroupRefusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def regexes_resolved(
    context: GroupContext,
    group: ConsumerGroup,
    found: Mapping[str, frozenset[str]],
    version: int,
    began_ms: int,
    draft: ConsumerDraft,
) -> None:
    """Store the matches of the expressions; if they have changed, the group's epoch is bumped.

    Shape: matches that are the same as before are not written again, so that their stored time is that of the first; if there is no memory for them, members with expressions are refused for some time.
    """
    matches = {
        regex: ResolvedRegex(names, version, began_ms)
        for regex, names in found.items()
        if group.regexes[regex]
    }
    more = sum(
        resolved_bytes(match) - resolved_bytes(group.resolved.get(regex))
        for regex, match in matches.items()
    )
    if context.memory.refuses_assignment(context.config, group.client, group.held_bytes, more):
        group.refused_until_ms = context.now_ms + MIN_INTERVAL_MS
        return
    topics = dict(group.topics)
    bump = False
    for regex, match in matches.items():
        names = match.topics
        known = group.resolved.get(regex)
        if known is not None and known.topics == names:
            continue
        before = frozenset() if known is None else known.topics
        if before != names:
            bump = True
            for name in before - names:
                count = topics[name]
                topics[name] = count._replace(by_regex=count.by_regex - 1)
                if not any(topics[name]):
                    del topics[name]
            for name in names - before:
                count = topics.get(name, Subscribers())
                topics[name] = count._replace(by_regex=count.by_regex + 1)
        draft.write(RegexRecord(group.group_id, regex, match))
    metadata_hash = context.hashes.of_group(topics, context.image)
    if bump or metadata_hash != group.metadata_hash:
        draft.write(EpochRecord(group.group_id, (group.group_epoch + 1, metadata_hash)))

    def resolved(now_ms: int, out: Result[Any]) -> None:
        group.resolved_ms = began_ms

    draft.afterwards.append(resolved)
