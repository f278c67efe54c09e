"""The principal that accompanies a forwarded request."""

from __future__ import annotations

from kwire.schema import field, message
from kwire.types import Bool, String


@message(kind="data", versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal in a forwarded request. KIP-590. Source: DefaultPrincipalData.json."""

    type: str = field(String)
    name: str = field(String)
    token_authenticated: bool = field(Bool)
