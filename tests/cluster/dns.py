"""The name server of the cluster: services by the name that Kubernetes gives them, and `*.outside.test`.

    python dns.py ADDRESS TOKEN_FILE OUTSIDE

Listens on ADDRESS, port 53, UDP. Services are asked of the API server at each question; `*.outside.test` is OUTSIDE, where
what does not belong to the cluster listens. Answers A records only: for AAAA the name exists and has none.
"""

import http.client
import json
import socket
import ssl
import struct
import sys

SUFFIX = ".svc.cluster.local"
TTL_S = 1
NO_ERROR, NAME_ERROR = 0, 3
TYPE_A = 1


def service_address(name: str, token: str) -> str | None:
    parts = name.removesuffix(SUFFIX).split(".")
    if len(parts) != 2:
        return None
    # the certificate is made at each start, and the way is the loopback
    trust = ssl._create_unverified_context()
    api = http.client.HTTPSConnection("127.0.0.1", 6443, timeout=2, context=trust)
    try:
        path = f"/api/v1/namespaces/{parts[1]}/services/{parts[0]}"
        api.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = api.getresponse()
        return json.load(answer)["spec"].get("clusterIP") if answer.status == 200 else None
    finally:
        api.close()


def question(packet: bytes) -> tuple[str, int, int]:
    """The name asked for, its type, and where the question ends."""
    labels, at = [], 12
    while (length := packet[at]) != 0:
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    (kind,) = struct.unpack_from("!H", packet, at + 1)
    return ".".join(labels).lower(), kind, at + 5


def answer(packet: bytes, token: str, outside: str) -> bytes:
    name, kind, end = question(packet)
    address = None
    if name.endswith(SUFFIX):
        address = service_address(name, token)
    elif name.endswith(".outside.test"):
        address = outside
    known = address is not None and address != "None"
    records = b""
    if known and kind == TYPE_A:
        records = struct.pack("!HHHIH", 0xC00C, TYPE_A, 1, TTL_S, 4) + socket.inet_aton(address)
    code = NO_ERROR if known else NAME_ERROR
    header = packet[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, 1 if records else 0, 0, 0)
    return header + packet[12:end] + records


def main() -> None:
    address, token_file, outside = sys.argv[1:]
    with open(token_file, encoding="ascii") as file:
        token = file.read().strip()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    while True:
        packet, client = server.recvfrom(512)
        try:
            server.sendto(answer(packet, token, outside), client)
        except Exception as error:  # one bad question must not end the service
            print(f"{client}: {error!r}", flush=True)


main()
