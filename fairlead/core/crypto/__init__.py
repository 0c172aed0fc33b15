"""Cryptography: TLS certificates, encryption at rest, and signing keys.

certificates.py   the server's own CA and certificate
certificate_files.py  certificates and keys, read together; peer_certificates.py: those of replicas
ssh_certificates.py  SSH user certificates
encryption.py     AES-256-GCM envelopes and keyrings; key_file.py: where the keys are stored
signing.py        RS256 keys for direct tokens
"""
