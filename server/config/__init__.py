"""Apache Kafka's configuration: the tables of keys, and the settings of the broker and of topics."""

from .broker_config import BrokerConfig
from .definitions import ConfigError, ConfigSource, ConfigType, UnknownConfigError

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "UnknownConfigError",
]
