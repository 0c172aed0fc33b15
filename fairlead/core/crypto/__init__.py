"""Cryptography: TLS certificates, encryption at rest, and signing keys.

certificates.py       the server's own CA and certificate; certificates and keys that are read together
peer_certificates.py  certificates of replicas; ssh_certificates.py: SSH user certificates
encryption.py         AES-256-GCM envelopes and keyrings, and where the keys are stored
signing.py            RS256 keys for direct tokens
agent_keys.py         the keys of agents that dial out, their join tokens, and the challenges that they sign
"""
