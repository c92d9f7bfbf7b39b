"""An issuer of tokens: keys of several kinds, and tokens with any claim, right or wrong."""

import json
from base64 import urlsafe_b64encode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from walle_deploy.identity.settings import TokensSpec
from walle_deploy.identity.tokens import TokenAuthenticator

NOW_S = 1_800_000_000.0


def ed25519(kid="k1"):
    return {**OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True), "kid": kid}


def p256(kid="k1"):
    return {**ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True), "kid": kid}


def rsa_pair(kid="k1"):
    """Private and public, as RSA's private half is of several numbers."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    both = (RSAAlgorithm.to_jwk(each, as_dict=True) for each in (key, key.public_key()))
    return [{**each, "kid": kid} for each in both]


def rsa2048(kid="k1", bits=2_048):
    key = rsa.generate_private_key(public_exponent=65_537, key_size=bits)
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}


def public(key):
    return {name: value for name, value in key.items() if name != "d"}


def write_keys(path, *keys):
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


def claims(**changes):
    made = {"iss": "shop", "aud": "walle-devices", "sub": "d-1", "exp": NOW_S + 3_600}
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def token(key, /, alg="EdDSA", kid=None, **changes):
    return jwt.encode(
        claims(**changes),
        jwt.PyJWK(key, algorithm=alg),
        algorithm=alg,
        headers={"kid": kid or key["kid"]},
    ).encode()


def segment(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=")


def authenticator(path, **changes):
    spec = {"mode": "tokens", "keys": path, "issuer": "shop", **changes}
    return TokenAuthenticator(TokensSpec.model_validate(spec))


def prove(verifier, given, now_s=NOW_S):
    return verifier.prove({b"authorization": b"Bearer " + given}, "192.0.2.1", now_s)
