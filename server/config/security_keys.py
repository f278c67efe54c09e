"""Apache Kafka's broker configs for encryption and login that have an effect in kwire.

Columns as in broker_keys.py. All of them can be set for one listener (`listener.name.<listener>.<key>`), and those
of logins for one of its mechanisms: read them with `BrokerConfig.listener`.
"""

from __future__ import annotations

from .definitions import ConfigKey, ConfigType, UpdateMode, at_least, one_of

key = ConfigKey
BOOLEAN, STRING, INT, LONG, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
MEDIUM, LOW = "MEDIUM", "LOW"
PER_BROKER = UpdateMode.PER_BROKER

# fmt: off
SECURITY_KEYS: tuple[ConfigKey, ...] = (
    # TLS
    key("ssl.allow.dn.changes", BOOLEAN, "false", LOW,
        doc="Whether a new certificate set with AlterConfigs may have another distinguished name than the one in use."),
    key("ssl.allow.san.changes", BOOLEAN, "false", LOW,
        doc="Whether a new certificate set with AlterConfigs may lack subject alternative names of the one in use."),
    key("ssl.cipher.suites", LIST, "", MEDIUM, PER_BROKER,
        doc="Cipher suites that may be negotiated, by Java's names; empty leaves the choice to OpenSSL."),
    key("ssl.client.auth", STRING, "none", MEDIUM, PER_BROKER, valid=one_of("required", "requested", "none"),
        doc="Whether a client has to present a certificate (required), may (requested), or is not asked for one (none)."),
    key("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", MEDIUM, PER_BROKER,
        doc="Versions of TLS that may be negotiated."),
    key("ssl.endpoint.identification.algorithm", STRING, "https", LOW, PER_BROKER,
        doc="https: a broker that connects to another checks the host name in its certificate; empty: it does not."),
    key("ssl.key.password", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Password of the private key: in a PKCS12 keystore, of the key's entry; in PEM, of an encrypted PKCS #8 key."),
    key("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Certificate and its issuers in PEM, instead of a keystore file."),
    key("ssl.keystore.key", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Private key in PEM (PKCS #8), instead of a keystore file."),
    key("ssl.keystore.location", STRING, None, MEDIUM, PER_BROKER,
        doc="File with the private key and certificate chain."),
    key("ssl.keystore.password", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Password of a PKCS12 keystore."),
    key("ssl.keystore.type", STRING, "JKS", MEDIUM, PER_BROKER,
        doc="PEM or PKCS12; a PKCS12 file is also read if this says JKS. A JKS file has to be converted."),
    key("ssl.principal.mapping.rules", STRING, "DEFAULT", LOW,
        doc="Rules that make a user name of a client certificate's distinguished name."),
    key("ssl.truststore.certificates", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Certificates of trusted authorities in PEM, instead of a truststore file."),
    key("ssl.truststore.location", STRING, None, MEDIUM, PER_BROKER,
        doc="File with the certificates of trusted authorities."),
    key("ssl.truststore.password", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Password of a PKCS12 truststore."),
    key("ssl.truststore.type", STRING, "JKS", MEDIUM, PER_BROKER,
        doc="PEM or PKCS12; a PKCS12 file is also read if this says JKS."),
    # Passwords set at run time
    key("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW,
        doc="Cipher that encrypts passwords set at run time: AES/CBC/PKCS5Padding or AES/GCM/NoPadding."),
    key("password.encoder.iterations", INT, "4096", LOW, valid=at_least(1024),
        doc="Iterations that make the cipher's key of password.encoder.secret; at most 200000."),
    key("password.encoder.key.length", INT, "128", LOW, valid=at_least(8),
        doc="Length of the cipher's key in bits: 128, 192 or 256."),
    key("password.encoder.keyfactory.algorithm", STRING, None, LOW,
        doc="PBKDF2WithHmacSHA512 if not set, or the same with SHA1, SHA224, SHA256 or SHA384."),
    key("password.encoder.old.secret", PASSWORD, None, MEDIUM,
        doc="The secret before the present one: at start, passwords encoded with it are encoded again."),
    key("password.encoder.secret", PASSWORD, None, MEDIUM,
        doc="Encrypts passwords set at run time; without it, they are refused."),
    # SASL
    key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", MEDIUM, PER_BROKER,
        doc="Mechanism with which this broker logs in at others, if their listener wants a login."),
    key("connection.failed.authentication.delay.ms", INT, "100", LOW, valid=at_least(0),
        doc="How long the connection of a failed login is kept open before it is answered and closed."),
    key("connections.max.reauth.ms", LONG, "0", MEDIUM,
        doc="How long a client is logged in before it has to log in again; 0 is for ever."),
    key("sasl.enabled.mechanisms", LIST, "GSSAPI", MEDIUM, PER_BROKER,
        doc="Mechanisms by which clients may log in."),
    key("sasl.jaas.config", PASSWORD, None, MEDIUM, PER_BROKER,
        doc="Login module of one mechanism: listener.name.<listener>.<mechanism>.sasl.jaas.config."),
    key("sasl.server.max.receive.size", INT, "524288", MEDIUM,
        doc="How long a request may be before the client has logged in."),
    # OAUTHBEARER
    key("sasl.oauthbearer.clock.skew.seconds", INT, "30", LOW,
        doc="How far the clocks of this broker and of the issuer of tokens may be apart."),
    key("sasl.oauthbearer.expected.audience", LIST, None, LOW,
        doc="A token has to be for one of these (aud). Not set: a token that names an audience is refused."),
    key("sasl.oauthbearer.expected.issuer", STRING, None, LOW,
        doc="A token has to come from this issuer (iss). Not set: from any whose key is in the key set."),
    key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", LOW,
        doc="Age at which the key set is fetched again, by the next login."),
    key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", LOW,
        doc="Longest wait after a key set could not be fetched."),
    key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", LOW,
        doc="First wait after a key set could not be fetched; it doubles with each failure."),
    key("sasl.oauthbearer.jwks.endpoint.url", STRING, None, MEDIUM,
        doc="URL (https:, http: or file:) of the JSON Web Key Set with the keys that tokens are signed with."),
    key("sasl.oauthbearer.scope.claim.name", STRING, "scope", LOW,
        doc="Claim with the scopes of a token."),
    key("sasl.oauthbearer.sub.claim.name", STRING, "sub", LOW,
        doc="Claim with the name of the user."),
    key("sasl.oauthbearer.token.endpoint.url", STRING, None, MEDIUM,
        doc="Where this broker gets its token for logins at other brokers: an endpoint for client credentials, or a file."),
    # GSSAPI
    key("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", MEDIUM, PER_BROKER,
        doc="Rules that make user names of Kerberos principals; the first that applies counts."),
    key("sasl.kerberos.service.name", STRING, None, MEDIUM, PER_BROKER,
        doc="First part of the brokers' Kerberos principals, for this broker's logins at others."),
    # Delegation tokens; not for single listeners.
    key("delegation.token.expiry.check.interval.ms", LONG, "3600000", LOW, valid=at_least(1),
        doc="How often the controller removes expired delegation tokens."),
    key("delegation.token.expiry.time.ms", LONG, "86400000", MEDIUM, valid=at_least(1),
        doc="How long a delegation token is valid without being renewed."),
    key("delegation.token.master.key", PASSWORD, None, MEDIUM,
        doc="Older name of `delegation.token.secret.key`."),
    key("delegation.token.max.lifetime.ms", LONG, "604800000", MEDIUM, valid=at_least(1),
        doc="Longest life of a delegation token, however often it is renewed."),
    key("delegation.token.secret.key", PASSWORD, None, MEDIUM,
        doc="Secret from which the passwords of delegation tokens are made, the same for all brokers. Not set: there are none."),
)
# fmt: on
