"""The broker. In a checkout this package is `server`; an installed wheel carries it as `kwire.server`."""
