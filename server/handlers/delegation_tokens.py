"""CreateDelegationToken (API key 38), Renew- (39), Expire- (40) and DescribeDelegationToken (41).

Behavior: a token may be asked for where the client has proved who it is: on a SASL listener, or with a TLS certificate;
and not if it has logged in with a token itself. Whoever may, may have tokens of its own; CREATE_TOKENS and
DESCRIBE_TOKENS on a user are needed for that user's, or DESCRIBE on a token. Owner and renewers may renew a token and
let it expire. Without `delegation.token.secret.key` all of it is refused with DELEGATION_TOKEN_AUTH_DISABLED.
Bounds that Apache Kafka does not have: the names of a token's renewers (INVALID_REQUEST), and the tokens that one user has
asked for (POLICY_VIOLATION), because every user may ask, and tokens are kept in memory.
Versions: 0-3 and 0-2: v3 tokens for other users (KIP-373).
Source: KafkaApis and DelegationTokenManager of 3.9; KIP-48.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kwire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kwire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kwire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

from ..security.acl import AclOperation, ResourceType
from ..security.identity import ANONYMOUS, USER_TYPE
from .context import Later, RequestContext
from .registry import handles

if TYPE_CHECKING:
    from ..security.delegation_tokens import TokenInfo


def may_ask(ctx: RequestContext) -> bool:
    """Whether the client has authenticated, and not with a token. Source: KafkaApis.allowTokenRequests."""
    client = ctx.connection
    if client.by_token or client.security_protocol == "PLAINTEXT":
        return False
    return client.security_protocol != "SSL" or client.principal != ANONYMOUS


def refusal_of(ctx: RequestContext) -> ErrorCode:
    """The error for a client that may not send such requests, or a broker without tokens; NONE otherwise."""
    if not may_ask(ctx):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if ctx.services.tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.NONE


@handles(CreateDelegationTokenRequest, versions="0-3", authorize=None)
def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> Generator[None, None, CreateDelegationTokenResponse | Later[CreateDelegationTokenResponse]]:
    """Make a token for the client, or for another user; the answer waits until it is stored."""
    requester = ctx.connection.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or USER_TYPE}:{request.owner_principal_name}"
    owner_type, _, owner_name = owner.partition(":")
    shown = requester if ctx.version >= 3 else ""  # older versions have no field for it
    requester_type, _, requester_name = shown.partition(":")

    def answer(error: ErrorCode, info: TokenInfo | None = None) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(
            error_code=error,
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=-1 if info is None else info.issue_ms,
            expiry_timestamp_ms=-1 if info is None else info.expiry_ms,
            max_timestamp_ms=-1 if info is None else info.max_ms,
            token_id="" if info is None else info.token_id,
            hmac=b"" if info is None or tokens is None else tokens.tokens.hmac_of(info.token_id),
        )

    tokens = ctx.services.tokens
    if not may_ask(ctx):
        return answer(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not ctx.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        return answer(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    from ..security.delegation_tokens import (
        MAX_RENEWERS_CHARACTERS,
    )  # its hashes are not needed before

    renewers: list[str] = []
    left = MAX_RENEWERS_CHARACTERS
    for renewer in request.renewers:
        yield
        if renewer.principal_type != USER_TYPE:
            return answer(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers.append(f"{renewer.principal_type}:{renewer.principal_name}")
        left -= len(renewers[-1])
        if left < 0:
            return answer(ErrorCode.INVALID_REQUEST)
    if tokens is None:
        return answer(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if tokens.tokens.has_too_many(requester):
        return answer(ErrorCode.POLICY_VIOLATION)
    made = tokens.create(owner, requester, tuple(renewers), request.max_lifetime_ms)
    return ctx.later(made, lambda info: answer(ErrorCode.NONE, info))


@handles(RenewDelegationTokenRequest, versions="0-2", authorize=None)
def renew_delegation_token(
    ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Later[RenewDelegationTokenResponse]:
    """Let a token live longer, up to its maximum lifetime."""
    error, tokens = refusal_of(ctx), ctx.services.tokens
    if error or tokens is None:
        return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1)
    renewed = tokens.renew(bytes(request.hmac), ctx.connection.principal, request.renew_period_ms)
    return ctx.later(
        renewed,
        lambda made: RenewDelegationTokenResponse(error_code=made[0], expiry_timestamp_ms=made[1]),
    )


@handles(ExpireDelegationTokenRequest, versions="0-2", authorize=None)
def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Later[ExpireDelegationTokenResponse]:
    """Let a token end sooner; at once if the period is negative."""
    error, tokens = refusal_of(ctx), ctx.services.tokens
    if error or tokens is None:
        return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1)
    ended = tokens.expire(
        bytes(request.hmac), ctx.connection.principal, request.expiry_time_period_ms
    )
    return ctx.later(
        ended,
        lambda made: ExpireDelegationTokenResponse(error_code=made[0], expiry_timestamp_ms=made[1]),
    )


@handles(DescribeDelegationTokenRequest, versions="0-3", authorize=None)
def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    """List the tokens that the client may see: those that concern it, and those it has permission for."""
    error, tokens = refusal_of(ctx), ctx.services.tokens
    rows: list[DescribedDelegationToken] = []
    if error or tokens is None:
        return DescribeDelegationTokenResponse(error_code=error, tokens=rows)
    wanted: set[str] | None = None
    if request.owners is not None:
        wanted = set()
        for owner in request.owners:
            yield
            wanted.add(f"{owner.principal_type}:{owner.principal_name}")
    for info in tokens.tokens:
        yield
        if wanted is not None and wanted.isdisjoint((info.owner, info.requester, *info.renewers)):
            continue
        if may_see(ctx, info):
            rows.append(row_of(info, tokens.tokens.hmac_of(info.token_id), ctx.version))
    return DescribeDelegationTokenResponse(tokens=rows)


def may_see(ctx: RequestContext, info: TokenInfo) -> bool:
    """Source: DelegationTokenManager.filterToken."""
    return (
        info.concerns(ctx.connection.principal)
        or ctx.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, info.token_id)
        or ctx.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, info.owner)
    )


def row_of(info: TokenInfo, hmac: bytes, version: int) -> DescribedDelegationToken:
    """A token in the form of DescribeDelegationToken; since version 3, with its requester."""
    owner_type, _, owner_name = info.owner.partition(":")
    requester_type, _, requester_name = (info.requester if version >= 3 else "").partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=info.issue_ms,
        expiry_timestamp=info.expiry_ms,
        max_timestamp=info.max_ms,
        token_id=info.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in info.renewers)
        ],
    )
