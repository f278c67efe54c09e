"""DescribeUserScramCredentials (API key 50) and AlterUserScramCredentials (51).

Behavior: the credentials are in the configs of users (`/config/users/<user>`), one for each mechanism, as Apache Kafka
stores them. What is wrong with one row of a request fails all rows of that user, and no row of others. Only the controller
changes credentials. A broker shows those of its image.
Versions: 0.
Source: ZkAdminManager.alterUserScramCredentials, describeUserScramCredentials; KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kwire.errors import ErrorCode
from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from ..coordination.paths import desanitize, sanitize
from ..metadata.image import DEFAULT_ENTITY, USERS
from ..security.acl import AclOperation
from ..security.sasl.scram_numbers import MAX_ITERATIONS, MIN_ITERATIONS, TYPES
from ..turns import Steps
from .authorization import cluster, depending
from .context import Later, RequestContext
from .registry import handles

NO_NAME = "Username must not be empty"
#: ZooKeeper takes no node of these names; Apache Kafka fails all rows of the request with UNKNOWN_SERVER_ERROR.
NO_NODE_NAMES, NO_NODE = (".", ".."), "Username must not be . or .."
UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"
TOO_FEW, TOO_MANY = "Too few iterations", "Too many iterations"
TWICE = "A user credential cannot be altered twice in the same request"
NOT_THERE = "Attempt to delete a user credential that does not exist"
NOBODY = "Attempt to describe a user credential that does not exist: {}"
DESCRIBED_TWICE = (
    "Cannot describe SCRAM credentials for the same user twice in a single request: {}"
)

NAMES = {number: name for name, number in TYPES.items()}


# -- DescribeUserScramCredentials ----------------------------------------------------------------


@handles(
    DescribeUserScramCredentialsRequest,
    versions="0",
    authorize=cluster(AclOperation.DESCRIBE),
)
def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Return mechanisms and iterations; without users in the request, those of all users with credentials."""
    configs = ctx.services.metadata().configs.get(USERS, {})
    results: list[DescribeUserScramCredentialsResult] = []
    if not request.users:
        for name in configs:
            yield
            if "/" not in name and name != DEFAULT_ENTITY:
                found = _described(desanitize(name), configs[name])
                if found is not None:
                    results.append(found)
    else:
        times = Counter(row.name for row in request.users)
        for user, count in times.items():
            yield
            if not user:
                row = _no_credentials(user, ErrorCode.RESOURCE_NOT_FOUND, NO_NAME)
            elif count > 1:
                message = DESCRIBED_TWICE.format(user)
                row = _no_credentials(user, ErrorCode.DUPLICATE_RESOURCE, message)
            else:
                row = _described(user, configs.get(sanitize(user), {})) or _no_credentials(
                    user, ErrorCode.RESOURCE_NOT_FOUND, NOBODY.format(user)
                )
            results.append(row)
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _described(user: str, config: Mapping[str, str]) -> DescribeUserScramCredentialsResult | None:
    """The credentials of a user; None without any."""
    from ..security.sasl.scram import BadCredential, ScramCredential

    infos = []
    for mechanism, number in TYPES.items():
        text = config.get(mechanism)
        if text is not None:
            try:
                iterations = ScramCredential.parse(text).iterations
            except BadCredential:
                return _no_credentials(user, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            infos.append(CredentialInfo(mechanism=number, iterations=iterations))
    if not infos:
        return None
    return DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)


def _no_credentials(
    user: str, error: ErrorCode, message: str | None
) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error, error_message=message, credential_infos=[]
    )


# -- AlterUserScramCredentials -------------------------------------------------------------------


class NoSuchCredential(Exception):
    """Raised if a credential to be deleted does not exist."""


ALTER_CLUSTER = cluster(AclOperation.ALTER)


def not_controller(ctx: RequestContext, request: object) -> ErrorCode:
    """Brokers that are not the controller answer all clients with this error, as in Apache Kafka."""
    return ErrorCode.NOT_CONTROLLER


@handles(
    AlterUserScramCredentialsRequest,
    versions="0",
    authorize=depending(
        lambda ctx, request: ALTER_CLUSTER if ctx.services.controller.is_active else not_controller
    ),
)
def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> Steps[AlterUserScramCredentialsResponse | Later[AlterUserScramCredentialsResponse]]:
    """Set and delete credentials; the answer waits until they are stored, and apply at this broker."""
    from ..security.sasl.scram import ScramCredential  # its hashes are not needed before

    refused: dict[str, AlterUserScramCredentialsResult] = {}
    times: Counter[tuple[str, int]] = Counter()
    # A deletion's fault is replaced by an upsertion's of the same user, as in Apache Kafka.
    rows: list[ScramCredentialDeletion | ScramCredentialUpsertion]
    rows = [*request.deletions, *request.upsertions]
    for row in rows:
        yield
        times[row.name, row.mechanism] += 1
        fault = _fault(row)
        if fault is not None:
            error = ErrorCode.UNACCEPTABLE_CREDENTIAL
            if fault == UNKNOWN_MECHANISM:
                error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            refused[row.name] = result(row.name, error, fault)
    for (user, _), count in times.items():
        yield
        if count > 1 and user not in refused:
            refused[user] = result(user, ErrorCode.DUPLICATE_RESOURCE, TWICE)
    changes: dict[str, dict[str, str | None]] = {}
    for deletion in request.deletions:
        yield
        if deletion.name not in refused:
            changes.setdefault(deletion.name, {})[NAMES[deletion.mechanism]] = None
    for upsertion in request.upsertions:
        yield
        if upsertion.name not in refused:
            mechanism = NAMES[upsertion.mechanism]
            changes.setdefault(upsertion.name, {})[mechanism] = ScramCredential.of(
                mechanism, upsertion.salt, upsertion.salted_password, upsertion.iterations
            ).text()
    results = list(refused.values())
    if not changes:
        return AlterUserScramCredentialsResponse(results=results)
    return ctx.later(_alter(ctx, changes, results))


async def _alter(
    ctx: RequestContext,
    changes: Mapping[str, Mapping[str, str | None]],
    results: list[AlterUserScramCredentialsResult],
) -> AlterUserScramCredentialsResponse:
    """Store the new credentials of each user (mechanism -> credential, or None to delete it)."""
    for user, wanted in changes.items():
        await ctx.services.turns.pause(ctx.connection)

        def change(
            before: Mapping[str, str], wanted: Mapping[str, str | None] = wanted
        ) -> Mapping[str, str]:
            if any(text is None and mechanism not in before for mechanism, text in wanted.items()):
                raise NoSuchCredential
            after = {name: text for name, text in before.items() if name not in wanted}
            after.update((name, text) for name, text in wanted.items() if text is not None)
            return after

        try:
            await ctx.services.controller.alter_config(USERS, sanitize(user), change)
        except NoSuchCredential:
            results.append(result(user, ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE))
        else:
            results.append(result(user, ErrorCode.NONE, ""))
    return AlterUserScramCredentialsResponse(results=results)


def _fault(row: ScramCredentialDeletion | ScramCredentialUpsertion) -> str | None:
    """The error of a row; None if it is valid."""
    if not row.name:
        return NO_NAME
    if row.name in NO_NODE_NAMES:
        return NO_NODE
    if row.mechanism not in NAMES:
        return UNKNOWN_MECHANISM
    if isinstance(row, ScramCredentialUpsertion):
        if row.iterations < MIN_ITERATIONS:
            return TOO_FEW
        if row.iterations > MAX_ITERATIONS:
            return TOO_MANY
    return None


def result(user: str, error: ErrorCode, message: str | None) -> AlterUserScramCredentialsResult:
    """How one user fared."""
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)
