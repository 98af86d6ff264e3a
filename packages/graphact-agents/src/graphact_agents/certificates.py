"""Certificates for the nodes of one deployment, signed by an authority whose key is discarded."""

import datetime
import ipaddress
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TLS_FOLDER = "tls"
AUTHORITY = f"{TLS_FOLDER}/ca.pem"


def common_name(node: int) -> str:
    """Return the name in the certificate of a node, by which its neighbours let it in."""
    return f"node-{node}"


def make_certificates(hosts: Mapping[int, str], days: int) -> dict[int, dict[str, bytes]]:
    """Return ``tls/ca.pem``, ``tls/cert.pem`` and ``tls/key.pem`` of each node, by their names.

    Args:
        hosts: the host by which neighbours reach each node; its certificate names it.
        days: how long certificates are valid.

    Raises:
        ModuleNotFoundError: cryptography is not installed.
    """
    if find_spec("cryptography") is None:
        raise ModuleNotFoundError(
            "certificates need the package cryptography: pip install 'graphact-agents[zenoh]'; "
            'transport = "udp" does without and does not encrypt'
        )
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = sign("network", authority_key.public_key(), authority_key, days, host=None)
    files = {}
    for node, host in hosts.items():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(common_name(node), key.public_key(), authority_key, days, host)
        files[node] = {
            AUTHORITY: authority.public_bytes(Encoding.PEM),
            f"{TLS_FOLDER}/cert.pem": certificate.public_bytes(Encoding.PEM),
            f"{TLS_FOLDER}/key.pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        }
    return files


def sign(name: str, public_key: Any, authority_key: Any, days: int, host: str | None) -> Any:
    """Return a certificate of a name and host; one without a host is an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=named("network"),
        subject_name=named(name),
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),  # clocks of nodes may be behind
        not_valid_after=now + datetime.timedelta(days=days),
    ).add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative_name(host)]), critical=False)
    return builder.sign(authority_key, SHA256())


def read_validity(folder: Path) -> tuple[float, float]:
    """Return from when to when the certificates in a folder are valid, in Unix time, as their authority is."""
    import ssl  # takes memory that agents without TLS need not

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "ca.pem")
    found = context.get_ca_certs()
    if not found:  # of an operator's own authority
        return float("-inf"), float("inf")
    made, ends = (ssl.cert_time_to_seconds(str(found[0][name])) for name in ("notBefore", "notAfter"))
    return made, ends


def certificate_trouble(validity: tuple[float, float], now: float) -> list[str]:
    """Return that certificates have ended, or that less than a tenth of their time is left, if so."""
    made, ends = validity
    if 10 * (ends - now) > ends - made:
        return []
    when = f"ends in {(ends - now) / 3600:.1f} hours" if now < ends else "has ended"
    return [f"its certificate {when}; deploy again, deliver and restart all nodes"]


def alternative_name(host: str) -> Any:
    """Return a host as a certificate names it; an IPv6 address without the interface of its scope."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return x509.DNSName(host)
