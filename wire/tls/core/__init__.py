"""The contents of key stores: JKS, PKCS12, PEM. Bytes and passwords in, certificates and keys out;
no files, no clock, no random numbers.
"""
