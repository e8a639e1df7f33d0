"""Serves a WSGI application on any free port of loopback until standard input ends.

Prints `listening http://127.0.0.1:PORT` when it is ready.
"""

import os
import signal
import sys
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


def serve(application):
    server = make_server("127.0.0.1", 0, application, handler_class=Quiet)

    def watch():
        while sys.stdin.buffer.read(4096):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    print(f"listening http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
