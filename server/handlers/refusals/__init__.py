"""The responses that carry one error for a whole request, for APIs that put it into their rows.

A handler names its function in `@handles(..., refusal=...)`; without one, the error goes into the
response's own error code. `Handler.refuse` makes such a response from an error code, for the
dispatcher (a failed check, a bug of ours) and for handlers. Source: getErrorResponse of each
request (Java).
"""
