"""Tokens in both directions, with PyPI `PyJWT`: somebody else believes what the cluster issues, by nothing but its
discovery document and its keys; and the cluster believes an issuer that runs here, over TLS.

`python_issuers.py prepare FOLDER` writes the issuer's certificate, which the server needs when it starts.
"""

import datetime
import http.server
import ipaddress
import json
import pathlib
import ssl
import sys
import threading
import time

import jwt
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from kubernetes import client, config
from kubernetes.client.rest import ApiException

PORT = 8443
ISSUER = f"https://127.0.0.1:{PORT}"


def prepare(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .sign(key, hashes.SHA256()))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                            serialization.NoEncryption())
    (folder / "issuer.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "issuer.key").write_bytes(pem)


def caller(token):
    """An API client that shows only a token."""
    settings = client.Configuration.get_default_copy()
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {token}"}
    return client.ApiClient(settings)


def refused(status, call, *arguments):
    try:
        call(*arguments)
    except ApiException as error:
        assert error.status == status, error
        return json.loads(error.body)
    raise AssertionError(f"it was not refused with {status}")


def discovery(token):
    """Whoever reads it needs no client of ours."""
    server = client.Configuration.get_default_copy()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.get(f"{server.host}/.well-known/openid-configuration", headers=headers, verify=server.ssl_ca_cert)


def who(api):
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return client.AuthenticationV1Api(api).create_self_subject_review(review).status.user_info


# The cluster as an issuer.

def issued_here(space):
    core = client.CoreV1Api()
    core.create_namespaced_service_account(space, {"metadata": {"name": "robot"}})
    pod = core.create_namespaced_pod(space, {
        "metadata": {"name": "robot"}, "spec": {"serviceAccountName": "robot", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "test.local/busybox", "command": ["sleep", "1000"]}]}})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "robot", "uid": pod.metadata.uid}
    request = {"spec": {"audiences": ["vault"], "expirationSeconds": 600, "boundObjectRef": bound}}
    outside = core.create_namespaced_service_account_token("robot", space, request).status.token
    inside = core.create_namespaced_service_account_token("robot", space, {"spec": {}}).status.token

    assert who(caller(inside)).username == f"system:serviceaccount:{space}:robot"
    found = discovery(inside)
    assert found.status_code == 200 and found.headers["content-type"] == "application/json", found
    document = found.json()
    assert document["id_token_signing_alg_values_supported"] and document["response_types_supported"] == ["id_token"]
    server = client.Configuration.get_default_copy()
    # The address that this token's reader is told, not a name that only Pods can resolve.
    assert document["jwks_uri"].startswith("https://192.0.2.1:"), document
    trust = ssl.create_default_context(cafile=server.ssl_ca_cert)
    keys = jwt.PyJWKClient(document["jwks_uri"], headers={"Authorization": f"Bearer {inside}"}, ssl_context=trust)
    key = keys.get_signing_key_from_jwt(outside)
    algorithms = document["id_token_signing_alg_values_supported"]
    claims = jwt.decode(outside, key, algorithms=algorithms, audience="vault", issuer=document["issuer"],
                        options={"require": ["exp", "iat", "nbf", "iss", "sub", "aud", "jti"]})
    assert claims["sub"] == f"system:serviceaccount:{space}:robot", claims
    assert claims["exp"] - claims["iat"] == 600, claims
    about = claims["kubernetes.io"]
    assert about["namespace"] == space and about["serviceaccount"]["name"] == "robot", about
    assert about["pod"] == {"name": "robot", "uid": pod.metadata.uid}, about
    try:
        jwt.decode(outside, key, algorithms=algorithms, audience="bank")
        raise AssertionError("a token for others was taken")
    except jwt.InvalidAudienceError:
        pass
    # Its own API server is not who it is for; one that asks is told about it.
    refused(401, who, caller(outside))
    review = {"spec": {"token": outside, "audiences": ["vault", "bank"]}}
    told = client.AuthenticationV1Api().create_token_review(review).status
    assert told.authenticated and told.audiences == ["vault"], told
    # Nobody else may look.
    told = discovery(None)
    assert told.status_code == 403 and told.json()["message"] == (
        'forbidden: User "system:anonymous" cannot get path "/.well-known/openid-configuration"'), told.text
    core.delete_namespaced_pod("robot", space, grace_period_seconds=0)


# An issuer elsewhere.

class Issuer:
    def __init__(self, folder):
        self.key, self.asked = rsa.generate_private_key(65537, 2048), []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "issuer.crt", folder / "issuer.key")
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked.append(self.path)
                body = json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
                                  if self.path == "/.well-known/openid-configuration"
                                  else {"keys": owner.public()}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def public(self):
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return [{**key, "kid": "first", "use": "sig", "alg": "RS256"}]

    def token(self, **claims):
        all_claims = {"iss": ISSUER, "aud": "cluster", "sub": "1", "email": "jane@example.com",
                      "email_verified": True, "teams": ["ships"], "tier": "paid", "iat": int(time.time()),
                      "exp": int(time.time()) + 300, **claims}
        given = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode(given, self.key, algorithm="RS256", headers={"kid": "first"})


def issued_elsewhere(folder, space):
    issuer = Issuer(folder)
    jane = who(caller(issuer.token()))
    assert (jane.username, jane.groups) == ("oidc:jane@example.com", ["oidc:ships", "system:authenticated"]), jane
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"], issuer.asked
    maps = client.CoreV1Api(caller(issuer.token()))
    told = refused(403, maps.list_namespaced_config_map, space)
    assert told["message"] == ('configmaps is forbidden: User "oidc:jane@example.com" cannot list resource "configmaps" '
                               f'in API group "" in the namespace "{space}"'), told
    client.RbacAuthorizationV1Api().create_namespaced_role_binding(space, {
        "metadata": {"name": "ships"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:ships"}]})
    assert maps.list_namespaced_config_map(space).items
    assert len(issuer.asked) == 2, "keys are kept"
    for wrong in ({"aud": "other"}, {"exp": int(time.time()) - 600}, {"email_verified": False}, {"tier": "free"},
                  {"iss": "https://127.0.0.1:1"}, {"email": None}):
        refused(401, who, caller(issuer.token(**wrong)))
    forged = jwt.encode({"iss": ISSUER, "aud": "cluster", "email": "root", "tier": "paid", "exp": int(time.time()) + 300},
                        rsa.generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "first"})
    refused(401, who, caller(forged))
    unsigned = jwt.encode({"iss": ISSUER, "aud": "cluster", "email": "root", "tier": "paid"}, None, algorithm="none")
    refused(401, who, caller(unsigned))


if sys.argv[1] == "prepare":
    prepare(pathlib.Path(sys.argv[2]))
else:
    config.load_kube_config()
    space = config.list_kube_config_contexts()[1]["context"]["namespace"]
    issued_here(space)
    issued_elsewhere(pathlib.Path(sys.argv[1]), space)
