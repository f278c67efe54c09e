"""The connection to ZooKeeper according to the settings: TLS, a login, and ACLs on created nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..config import BrokerConfig, ConfigError
from ..config.definitions import to_text
from ..config.jaas_file import ZOOKEEPER_LOGIN
from ..security.jaas import JaasError, parse_jaas_config

if TYPE_CHECKING:
    import ssl

    from ..coordination.zookeeper import ZooKeeperLogin, ZooKeeperStore

#: The settings for ZooKeeper that correspond to those of a listener. Source:
#: KafkaConfig.ZkSslConfigToSystemPropertyMap.
NAMES = {
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.protocol": "zookeeper.ssl.protocol",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
}
#: The type of a store by its file extension, if it is not set. Source: KeyStoreFileType.fromFilename.
TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12", ".pkcs12": "PKCS12"}
ENABLED = "zookeeper.ssl.client.enable"
SET_ACL = "zookeeper.set.acl"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
CONNECTION_TIMEOUT = "zookeeper.connection.timeout.ms"


async def connect_to_zookeeper(config: BrokerConfig, servers: str) -> ZooKeeperStore:
    """Open the store in ZooKeeper. Errors: StoreError, ConfigError."""
    from ..coordination.zookeeper import ZooKeeperStore

    login, tls = login_of(config), tls_of(config)
    set_acl = config.get_bool(SET_ACL)
    if (
        set_acl
        and login is None
        and (tls is None or config["zookeeper.ssl.keystore.location"] is None)
    ):
        raise ConfigError(
            f"{SET_ACL} is true, but this broker has no identity for ZooKeeper: set {ZOOKEEPER_LOGIN}, or a"
            f" JAAS file with a section Client, or {ENABLED} and zookeeper.ssl.keystore.location",
            SET_ACL,
            "true",
        )
    longest = SESSION_TIMEOUT if config[CONNECTION_TIMEOUT] is None else CONNECTION_TIMEOUT
    try:
        return await ZooKeeperStore.connect(
            servers,
            session_timeout_ms=config.get_int(SESSION_TIMEOUT),
            connection_timeout_ms=config.get_int(longest),
            login=login,
            tls=tls,
            set_acl=set_acl,
        )
    except ValueError as error:
        raise ConfigError(f"zookeeper.connect={servers}: {error}") from None


def login_of(config: BrokerConfig) -> ZooKeeperLogin | None:
    """The login at ZooKeeper; None without one. Errors: ConfigError."""
    from ..coordination.zookeeper import ZooKeeperLogin

    text = config.get_optional_str(ZOOKEEPER_LOGIN)
    if text is None:
        return None
    try:
        module = parse_jaas_config(text)
        if module.class_name != "DigestLoginModule":
            raise JaasError(
                f"kwire has no {module.class_name} for ZooKeeper, only DigestLoginModule, here and in the section"
                " Client of a JAAS file"
            )
        return ZooKeeperLogin(module.require("username"), module.require("password"))
    except JaasError as error:
        message = f"Invalid value [hidden] for configuration {ZOOKEEPER_LOGIN}: {error}"
        raise ConfigError(message, ZOOKEEPER_LOGIN, "[hidden]", str(error)) from None


def tls_of(config: BrokerConfig) -> ssl.SSLContext | None:
    """The context for TLS with ZooKeeper; None if it is off. Errors: ConfigError."""
    if not config.get_bool(ENABLED):
        return None
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config[key]:
            reason = "kwire does not check whether certificates were revoked"
            raise ConfigError(
                f"Invalid value true for configuration {key}: {reason}", key, "true", reason
            )
    from ..security.tls.contexts import client_context

    return client_context(ZooKeeperSettings(config), lambda path: Path(path).read_bytes())


class ZooKeeperSettings:
    """The zookeeper.ssl.* settings under the names of a listener's settings."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def own(self, key: str) -> str | None:
        return None

    def get_list(self, key: str) -> list[str]:
        value = self._config[NAMES[key]]
        if isinstance(value, list):
            return value
        return [self.get_str("ssl.protocol")] if key == "ssl.enabled.protocols" else []

    def get_str(self, key: str) -> str:
        value = self.get_optional_str(key)
        assert value is not None
        return value

    def get_optional_str(self, key: str) -> str | None:
        name = NAMES.get(key)
        value = None if name is None else self._config.get_optional_str(name)
        if value is None and key.endswith("store.type"):
            location = self.get_optional_str(key.replace(".type", ".location")) or ""
            return TYPES.get(Path(location).suffix.lower(), "JKS")
        return value

    def refusal(self, key: str, reason: str, allowed: str | None = None) -> ConfigError:
        """A ConfigError that names the setting for ZooKeeper; hides secrets."""
        name = NAMES.get(key, key)
        shown = "[hidden]" if "password" in name else str(to_text(self._config.values.get(name)))
        reason = reason.replace(" ssl.", " zookeeper.ssl.")
        message = f"Invalid value {shown} for configuration {name}: {reason}"
        return ConfigError(message, name, shown, reason, allowed)
