"""TLS: keys and certificates, OpenSSL contexts, and the identity of a certificate's owner."""
