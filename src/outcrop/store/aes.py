"""AES-256-GCM with a random nonce."""

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


def encrypt(key: bytes, plaintext: bytes, associated_data: bytes) -> bytes:
    """Encrypt with AES-GCM; return a random nonce followed by the ciphertext."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated_data)


def decrypt(key: bytes, box: bytes, associated_data: bytes) -> bytes:
    """Decrypt the result of `encrypt`; raise InvalidTag if key or associated data differ."""
    return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], associated_data)
