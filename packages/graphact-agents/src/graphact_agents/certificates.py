"""Certificates for the nodes of one network, signed by an authority whose key is never written."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphact_agents.disk import write_atomically

TLS_FOLDER = "tls"
DAYS = 3650


def common_name(node: int) -> str:
    """Return the name in the certificate of a node, by which its neighbours let it in."""
    return f"node-{node}"


def can_make_certificates() -> bool:
    """Return whether the package cryptography is installed."""
    from importlib.util import find_spec

    return find_spec("cryptography") is not None


def make_certificates(folders: Sequence[Path], hosts: Sequence[str]) -> None:
    """Write ``tls/ca.pem``, ``tls/cert.pem`` and ``tls/key.pem`` into the folder of each node, valid for ten years.

    Args:
        folders: the folder of each node, by number.
        hosts: the host by which neighbours reach each node; its certificate names it.

    Raises:
        ModuleNotFoundError: cryptography is not installed.
    """
    if not can_make_certificates():
        raise ModuleNotFoundError("certificates need the package cryptography: pip install 'graphact-agents[zenoh]'")
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = sign("network", authority_key.public_key(), authority_key, "network", host=None)
    for node, (folder, host) in enumerate(zip(folders, hosts, strict=True)):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(common_name(node), key.public_key(), authority_key, "network", host)
        out = folder / TLS_FOLDER
        out.mkdir(mode=0o700)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_atomically(out / "key.pem", secret, mode=0o600)
        (out / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        (out / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))


def sign(name: str, public_key: Any, authority_key: Any, authority: str, host: str | None) -> Any:
    """Return a certificate of a name and host; one without a host is an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=named(authority),
        subject_name=named(name),
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),  # clocks of nodes may be behind
        not_valid_after=now + datetime.timedelta(days=DAYS),
    ).add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative_name(host)]), critical=False)
    return builder.sign(authority_key, SHA256())


def alternative_name(host: str) -> Any:
    """Return a host as a certificate names it; an IPv6 address without the interface of its scope."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return x509.DNSName(host)
