"""Certificates for the nodes of one network, made with openssl by an authority that is forgotten at once."""

import ipaddress
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TLS_FOLDER = "tls"
DAYS = "3650"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def common_name(node: int) -> str:
    """The name in the certificate of a node, by which its neighbours let it in."""
    return f"node-{node}"


def can_make_certificates() -> bool:
    """Whether openssl is installed."""
    return shutil.which("openssl") is not None


def make_certificates(folders: Sequence[Path], hosts: Sequence[str], nodes: Sequence[int] | None = None) -> None:
    """Write ``tls/ca.pem``, ``tls/cert.pem`` and ``tls/key.pem`` into the folder of each node, valid for ten years.

    Args:
        folders: of each node.
        hosts: by which neighbours reach each of them; its certificate names it.
        nodes: their numbers; 0, 1 and so on, if left out.

    Raises:
        FileNotFoundError: openssl is not installed.
    """
    if not can_make_certificates():
        raise FileNotFoundError("openssl, which makes the certificates for TLS, is not installed")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        work = Path(name)
        authority = ("-subj", "/CN=network", "-addext", "basicConstraints=critical,CA:TRUE")
        openssl(work, "req", "-x509", *NEW_KEY, "-days", DAYS, *authority, "-keyout", "ca.key", "-out", "ca.pem")
        numbers = range(len(folders)) if nodes is None else nodes
        jobs = [pool.submit(make_certificate, work, *each) for each in zip(numbers, folders, hosts, strict=True)]
        for job in jobs:
            job.result()


def make_certificate(work: Path, node: int, folder: Path, host: str) -> None:
    """The certificate of one node, signed by the authority in the folder ``work``."""
    out = (folder / TLS_FOLDER).resolve()
    out.mkdir(mode=0o700)
    key, request, extension = out / "key.pem", work / f"{node}.csr", work / f"{node}.ext"
    key.touch(mode=0o600)
    subject = ("-subj", f"/CN={common_name(node)}")
    openssl(work, "req", *NEW_KEY, *subject, "-keyout", str(key), "-out", str(request))
    extension.write_text(f"subjectAltName={alternative_name(host)}\nbasicConstraints=CA:FALSE\n")
    serial = ("-set_serial", str(node + 2), "-days", DAYS, "-extfile", str(extension))
    signing = ("-in", str(request), "-CA", "ca.pem", "-CAkey", "ca.key", *serial)
    openssl(work, "x509", "-req", *signing, "-out", str(out / "cert.pem"))
    shutil.copy(work / "ca.pem", out / "ca.pem")


def alternative_name(host: str) -> str:
    """A host as a certificate names it; an IPv6 address without the interface of its scope."""
    try:
        return f"IP:{ipaddress.ip_address(host.partition('%')[0])}"
    except ValueError:
        return f"DNS:{host}"


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder; OSError with its last line if it fails."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, cwd=folder, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(f"openssl {arguments[0]} failed: {said[-1] if said else f'exit code {done.returncode}'}")
