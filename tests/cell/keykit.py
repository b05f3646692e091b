# SPDX-License-Identifier: Apache-2.0
"""
Keys, certificates and servers that hand them out, all made by the openssl
program, which PostgreSQL's packages bring along.
"""
import base64
import http.server
import json
import os
import ssl
import subprocess
import threading

CA_CONF = """
[ca]
default_ca = d
[d]
new_certs_dir = {0}
database = {0}/index
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = leaf
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
[leaf]
basicConstraints = critical,CA:false
"""


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*args):
    return subprocess.run(("openssl",) + args, check=True, timeout=60,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE).stdout


class EdKey:
    """An Ed25519 key in a file of folder."""

    def __init__(self, folder, kid):
        self.folder, self.kid = folder, kid
        self.path = os.path.join(folder, kid + ".key")
        openssl("genpkey", "-algorithm", "ed25519", "-out", self.path)
        # the last 32 bytes of the DER form are the key
        self.x = openssl("pkey", "-in", self.path, "-pubout", "-outform",
                         "DER")[-32:]

    def pem(self):
        return openssl("pkey", "-in", self.path, "-pubout").decode()

    def jwk(self):
        return {"kty": "OKP", "crv": "Ed25519", "kid": self.kid,
                "x": b64(self.x)}

    def token(self, kid=None, **claims):
        head = b64(json.dumps({"alg": "EdDSA",
                               "kid": kid or self.kid}).encode())
        text = head + "." + b64(json.dumps(claims).encode())
        path = os.path.join(self.folder, "to-sign")
        with open(path, "w") as f:
            f.write(text)
        return text + "." + b64(openssl("pkeyutl", "-sign", "-rawin",
                                        "-inkey", self.path, "-in", path))


class Authority:
    """A certificate authority of our own, in folder/name."""

    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.pem, self.key = self.at("ca.pem"), self.at("ca.key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
                "-days", "2", "-keyout", self.key, "-out", self.pem)
        with open(self.at("conf"), "w") as f:
            f.write(CA_CONF.format(self.folder))
        open(self.at("index"), "w").close()

    def at(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, san, until="20991231000000Z"):
        """A server context for a certificate with this subjectAltName."""
        key, csr, pem = (self.at(name + end) for end in
                         (".key", ".csr", ".pem"))
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
                "-addext", "subjectAltName=" + san, "-keyout", key,
                "-out", csr)
        openssl("ca", "-batch", "-notext", "-config", self.at("conf"),
                "-cert", self.pem, "-keyfile", self.key, "-in", csr,
                "-startdate", "20200101000000Z", "-enddate", until,
                "-out", pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, key)
        return context


class KeyServer(http.server.ThreadingHTTPServer):
    """Serves the keys in `keys` as a JWKS document; over TLS with a context.
    `tries` counts connections, `hits` requests; without `go` none is
    answered."""

    daemon_threads = True

    def __init__(self, context=None):
        self.keys, self.tries, self.hits, self.up = [], 0, 0, True
        self.context, self.go = context, threading.Event()
        self.go.set()
        super().__init__(("127.0.0.1", 0), KeyHandler)
        self.url = "%s://127.0.0.1:%d/keys" % (
            "https" if context else "http", self.server_port)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def get_request(self):
        sock, address = super().get_request()
        self.tries += 1
        return sock, address

    def finish_request(self, request, client_address):
        """In a thread of the request: a handshake stops nobody else."""
        if self.context:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                return  # the client does not trust us
        super().finish_request(request, client_address)
        if self.context:
            request.close()

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.go.set()
        self.shutdown()
        self.server_close()


class KeyHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.hits += 1
        self.server.go.wait(60)
        body = json.dumps({"keys": [k.jwk() for k in
                                    self.server.keys]}).encode()
        self.send_response(200 if self.server.up else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass
