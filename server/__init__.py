"""The broker. In a checkout, this package is `server`; an installed wheel contains it as `kwire.server`."""
