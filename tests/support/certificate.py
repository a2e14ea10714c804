"""A self-signed certificate for 127.0.0.1, made by the `openssl` binary when a test needs it."""

import shutil
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path


def self_signed(case: unittest.TestCase) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's context, and a client's that trusts it; skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        case.skipTest("the openssl binary is missing")
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    certificate, key = Path(folder.name) / "certificate.pem", Path(folder.name) / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=scripted", "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))
