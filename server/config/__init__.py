"""Apache Kafka's configuration: the tables of keys, the broker's settings and those of topics."""

from .broker_config import BrokerConfig
from .definitions import ConfigError, ConfigSource, ConfigType, UnknownConfigError

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "UnknownConfigError",
]
