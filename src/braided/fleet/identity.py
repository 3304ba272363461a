"""The identity of a peer: keys and certificates from the fleet's token, for mutual authentication in TLS 1.3.

The token is the fleet's secret. Everybody who has it derives the same signing key from it: the fleet's authority. A
peer creates its own key, which never leaves the peer, and a certificate signed by the authority. Two peers accept
each other if both certificates are of their fleet, and identify each other by the hash of the public key in it.

The standard library cannot create certificates: this needs the `cryptography` package (`braided[peers]`).
"""

from __future__ import annotations

import datetime
import hashlib
import os
import secrets
import ssl
import stat
import tempfile
from pathlib import Path
from typing import Any

from braided.errors import PeerError
from braided.fleet.messages import check_name

_SHORTEST = 32
# Clocks of machines may differ, and a new token replaces all certificates: their dates are not used.
_SINCE, _UNTIL = datetime.datetime(2020, 1, 1), datetime.datetime(2120, 1, 1)
_AUTHORITY = "braided fleet"


class Token:
    """The secret of a fleet; its text is never shown.

    >>> Token("x" * 32)
    Token(hidden)
    """

    def __init__(self, secret: str) -> None:
        if len(secret) < _SHORTEST:
            raise PeerError(f"token: has {len(secret)} characters, fewer than {_SHORTEST}; create one with `new_token`")
        self.secret = secret

    def __repr__(self) -> str:
        return "Token(hidden)"

    def write(self, path: Path) -> None:
        """Write it to a new file that only this user can read."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self.secret + "\n")

    @classmethod
    def read(cls, path: Path) -> Token:
        """Read it from a file, which only this user may be able to read."""
        try:
            mode, text = path.stat().st_mode, path.read_text()
        except OSError as error:
            raise PeerError(f"token file {path}: {error.strerror}; give the file that the first peer wrote") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PeerError(f"token file {path}: other users can read it; run chmod 600 {path}")
        return cls(text.strip())


def new_token() -> Token:
    """Return the token of a new fleet."""
    return Token(secrets.token_urlsafe(32))


def node_of(certificate: bytes) -> str:
    """Return the id of the node with a certificate (DER): the SHA-1 of its public key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha1(public, usedforsecurity=False).hexdigest()


class Identity:
    """A peer's key and certificate, new at every start, and the TLS settings of both sides."""

    def __init__(self, name: str, token: Token) -> None:
        check_name(name, "name")
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        except ImportError:
            raise PeerError("peers over a network need the cryptography package; install braided[peers]") from None
        self.name = name
        authority = _authority_key(token)
        key = Ed25519PrivateKey.generate()
        root = _signed(_AUTHORITY, authority, authority.public_key(), is_authority=True)
        own = _signed(name, authority, key.public_key(), is_authority=False)
        self._trusted = root.public_bytes(Encoding.PEM).decode()
        self.node = node_of(own.public_bytes(Encoding.DER))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # The ssl module reads keys only from files.
        with tempfile.TemporaryDirectory() as folder:
            chain = Path(folder) / "chain.pem"
            with os.fdopen(os.open(chain, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(private + own.public_bytes(Encoding.PEM))
            self.server = self._context(ssl.PROTOCOL_TLS_SERVER, chain)
            self.client = self._context(ssl.PROTOCOL_TLS_CLIENT, chain)
        self.server.num_tickets = 0  # no session is resumed

    def _context(self, protocol: int, chain: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Peers are identified by their keys. Addresses change, and prove nothing.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self._trusted)
        context.load_cert_chain(chain)
        return context


def _authority_key(token: Token) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derive = HKDF(algorithm=SHA256(), length=32, salt=b"braided fleet", info=b"authority 1")
    return Ed25519PrivateKey.from_private_bytes(derive.derive(token.secret.encode()))


def _signed(name: str, authority: Any, public: Any, *, is_authority: bool) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    builder = x509.CertificateBuilder(
        issuer_name=named(_AUTHORITY),
        subject_name=named(name),
        public_key=public,
        serial_number=1 if is_authority else x509.random_serial_number(),
        not_valid_before=_SINCE,
        not_valid_after=_UNTIL,
    )
    usage = x509.KeyUsage(
        digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=False, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True)
        .add_extension(usage, True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False)
        .sign(authority, None)
    )
