"""TLS: keys and certificates, contexts of OpenSSL, and who the owner of a certificate is."""
