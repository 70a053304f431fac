"""The options of TLS in a URL, and the TLS context made of them."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

#: The parameters of the URL, with redis-py's names.
TLS = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_certfile", "ssl_keyfile", "ssl_password"),
    *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
)

#: The remedies if the server's certificate, or this client's, is refused.
EXPIRED = "Renew the certificate of the server. If it is not out of date, see the clock of this host."
OTHER_HOST = (
    "Write a host that the certificate names in the URL, or give the server a certificate for this host "
    "(subjectAltName)."
)
UNVERIFIED = "Name the authority that signed its certificate in the URL: ?ssl_ca_certs=/path/ca.pem."
CLIENT_CERTIFICATE = (
    "It wants a certificate of its clients that it trusts: name yours in the URL, "
    "?ssl_certfile=/path/client.pem&ssl_keyfile=/path/client.key."
)

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CERT_REQS = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_VERSIONS = {"TLSv1_2": ssl.TLSVersion.TLSv1_2, "TLSv1_3": ssl.TLSVersion.TLSv1_3}


class Tls:
    """The TLS options. By default certificate and host name are verified."""

    def __init__(self, told: Mapping[str, str]) -> None:
        """Check *told*, the values of the parameters `TLS`. Reads no file.

        Raises ValueError, which says what to write, for a wrong value.
        """
        self._told = told
        needed = told.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
        if needed not in _CERT_REQS:
            raise ValueError("ssl_cert_reqs has to be required, optional or none.")
        check_hostname = told.get("ssl_check_hostname", "true").lower()
        if check_hostname not in _FLAGS:
            raise ValueError("ssl_check_hostname has to be true or false.")
        self._verify_mode = _CERT_REQS[needed]
        self._check_hostname = _FLAGS[check_hostname] and self._verify_mode is not ssl.CERT_NONE
        if told.get("ssl_min_version", "TLSv1_2") not in _VERSIONS:
            raise ValueError(f"ssl_min_version has to be {' or '.join(_VERSIONS)}.")
        if "ssl_ciphers" in told:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(told["ssl_ciphers"])
            except ssl.SSLError:
                raise ValueError("ssl_ciphers names none that OpenSSL knows.") from None

    @property
    def password(self) -> str | None:
        """The password of the file ssl_keyfile, a secret; None if the URL has none."""
        return self._told.get("ssl_password")

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The TLS context. Reads files, and raises OSError if a file can't be used.

        Raises ValueError if ssl_ca_data holds no certificate.
        """
        told = self._told
        # Open each file first, because OpenSSL does not say which file is missing.
        for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
            if name in told:
                os.close(os.open(told[name], os.O_RDONLY | os.O_CLOEXEC))
        with _named("ssl_ca_certs", told):
            context = ssl.create_default_context(
                cafile=told.get("ssl_ca_certs"),
                capath=told.get("ssl_ca_path"),
                cadata=told.get("ssl_ca_data"),
            )
        context.check_hostname = self._check_hostname
        context.verify_mode = self._verify_mode
        if "ssl_min_version" in told:
            context.minimum_version = _VERSIONS[told["ssl_min_version"]]
        if "ssl_ciphers" in told:
            context.set_ciphers(told["ssl_ciphers"])
        if "ssl_certfile" in told:
            with _named("ssl_certfile", told):
                context.load_cert_chain(
                    told["ssl_certfile"], told.get("ssl_keyfile"), told.get("ssl_password")
                )
        return context


@contextmanager
def _named(name: str, told: Mapping[str, str]) -> Iterator[None]:
    """Raise an OSError that names the file of the option *name* if OpenSSL can't use it.

    Without that option the block has loaded ssl_ca_data, so raise ValueError about that.
    """
    try:
        yield
    except ssl.SSLError as error:
        if name not in told:
            raise ValueError("ssl_ca_data holds no certificate") from None
        raise OSError(errno.EINVAL, f"{name} can't be used ({error})", told[name]) from None
