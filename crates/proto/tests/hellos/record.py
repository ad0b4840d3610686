"""Records the first flight of a TLS client.

usage: record.py NAME [--forward PORT] -- COMMAND...

Listens on loopback, runs COMMAND with {port} replaced, and writes what the client sent before any
answer to NAME.hex. With --forward the listener relays to that loopback port, so that the handshake
completes; it still writes only the bytes before the server's first answer. Of several connections
it keeps the last: the resumed one.
"""

import selectors
import socket
import subprocess
import sys
import threading
import time

SETTLED = 0.3  # seconds without another byte end the first flight


def relay(client, server, flight):
    answered = False
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ, server)
        ready.register(server, selectors.EVENT_READ, client)
        while True:
            for key, _ in ready.select():
                data = key.fileobj.recv(65536)
                if not data:
                    return
                if key.fileobj is client and not answered:
                    flight += data
                    time.sleep(SETTLED)
                    client.setblocking(False)
                    try:
                        while more := client.recv(65536):
                            data += more
                            flight += more
                    except BlockingIOError:
                        pass
                    client.setblocking(True)
                answered = answered or key.fileobj is server
                key.data.sendall(data)


def record(client, forward, flights):
    flight = bytearray()
    flights.append(flight)
    with client:
        if forward is None:
            client.settimeout(SETTLED)
            try:
                while data := client.recv(65536):
                    flight += data
            except TimeoutError:
                pass
        else:
            with socket.create_connection(("127.0.0.1", forward)) as server:
                relay(client, server, flight)


def main():
    name, *rest = sys.argv[1:]
    split = rest.index("--")
    options, command = rest[:split], rest[split + 1 :]
    forward = int(options[1]) if options else None
    flights = []
    listener = socket.create_server(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])

    def serve():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=record, args=(client, forward, flights), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    subprocess.run(
        [part.replace("{port}", port) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    time.sleep(2 * SETTLED)
    text = bytes(flights[-1]).hex()
    lines = [text[at : at + 96] for at in range(0, len(text), 96)]
    with open(f"{name}.hex", "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
